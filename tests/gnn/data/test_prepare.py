"""Data sets on disk -> prepared data; hashes of what they hold."""

import hashlib
import pickle
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from synthetic import SPLIT, cluster, prepared, read, toy_run

from gnnperf.core.errors import InputError
from gnnperf.gnn.data import cache
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.module import EpochShuffle, SharedBatches, StepDataModule
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, load_data, opened, prepare
from gnnperf.gnn.data.recordings import Processor
from gnnperf.gnn.data.runs import RunGraph, cluster_for
from gnnperf.hardware import COLLECTIVES_GROUP, Placement, load_device, path_of
from tests.gnn.data.data_sets import carded

SMALL = replace(SPLIT, train=("a",), test=())


def test_parts_and_statistics_from_train_only(data: PreparedData, toy_cache: Path) -> None:
    assert {part: [s.run for s in steps] for part, steps in data.steps.items()} == {
        "train": ["a", "b", "c", "d"], "val": ["e"], "test": ["f"]
    }  # fmt: skip

    def strange(run: str) -> RunGraph:
        result = read(run)
        if run in SPLIT.train:
            return result
        nodes = result.graph.nodes.assign(dtype="strange", latency_us=1e6)
        return replace(result, graph=replace(result.graph, nodes=nodes, fingerprint=f"strange {run}"))

    other = prepare(DataConfig(cache_dir=str(toy_cache)), SPLIT, strange)
    assert other.vocabulary == data.vocabulary
    assert other.floors == data.floors
    assert other.constants == data.constants
    assert all(torch.equal(other.normalizer.mean[t], data.normalizer.mean[t]) for t in data.normalizer.mean)
    assert other.fingerprint != data.fingerprint
    assert other.training_fingerprint != data.training_fingerprint  # val is strange, too


def test_what_is_tested_on_is_no_part_of_what_is_learned_from(data: PreparedData, toy_cache: Path) -> None:
    external = prepare(DataConfig(cache_dir=str(toy_cache)), replace(SPLIT, test=("g",)), read)
    assert external.training_fingerprint == data.training_fingerprint
    assert external.fingerprint != data.fingerprint
    fewer = prepare(DataConfig(cache_dir=str(toy_cache)), replace(SPLIT, train=SPLIT.train[:3]), read)
    assert fewer.training_fingerprint != data.training_fingerprint


def test_training_features_have_mean_zero(data: PreparedData) -> None:
    x = torch.cat([s.data["compute"].x for s in data.steps["train"]])
    assert x.mean(0).abs().max() < 1e-5


def test_the_cache_knows_collective_models_of_collectives_by_their_content(tmp_path: Path) -> None:
    collective_models = tmp_path / "collectives.yaml"

    def with_collective_models(run: str) -> RunGraph:
        result = read(run)
        return replace(result, cluster=replace(result.cluster, collectives={"any": str(collective_models)}))

    for count, name in ((2, "a100_vtrain"), (2, "a100_vtrain"), (4, "perlmutter")):
        shutil.copy(path_of(name, COLLECTIVES_GROUP), collective_models)
        prepare(DataConfig(cache_dir=str(tmp_path)), SMALL, with_collective_models)
        assert len(list(tmp_path.rglob("*.pt"))) == count


def test_the_cache_is_read_the_second_time_and_depends_on_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(tmp_path, SMALL)
    assert len(list(tmp_path.rglob("*.pt"))) == 2
    monkeypatch.setattr("gnnperf.gnn.data.prepare.features", None)  # would fail if it were called
    again = prepared(tmp_path, SMALL)
    assert torch.equal(again.steps["val"][0].data["host"].x, first.steps["val"][0].data["host"].x)
    assert again.fingerprint == first.fingerprint
    monkeypatch.setattr(cache, "code_fingerprint", lambda: "other code")
    with pytest.raises(TypeError):
        prepared(tmp_path, SMALL)
    monkeypatch.undo()
    monkeypatch.setattr(cache, "code_fingerprint", lambda: "other code")
    assert prepared(tmp_path, SMALL).fingerprint == first.fingerprint  # the same data, made anew
    assert len(list(tmp_path.rglob("*.pt"))) == 4


def test_a_damaged_cache_file_is_made_anew(tmp_path: Path) -> None:
    first = prepared(tmp_path, SMALL)
    for file in tmp_path.rglob("*.pt"):
        file.write_bytes(b"damaged")
    assert prepared(tmp_path, SMALL).fingerprint == first.fingerprint
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_only() -> None:
    one, two = EpochShuffle(20, seed=1), EpochShuffle(20, seed=1)
    for epoch in (0, 1, 2):
        one.set_epoch(epoch)
    two.set_epoch(2)
    assert list(one) == list(two)
    two.set_epoch(1)
    assert list(one) != list(two)
    assert sorted(one) == list(range(20))


def test_batches_leave_unused_edge_types_out(data: PreparedData) -> None:
    module = StepDataModule(data, DataConfig(batch_size=2), num_hops=1, seed=0)
    batch = next(iter(module.train_dataloader()))
    assert batch.num_graphs == 2
    assert batch["compute"].num_nodes == 4
    assert all(batch[t].edge_index.shape[1] for t in batch.edge_types)


def test_the_hardware_of_a_run() -> None:
    graph = toy_run(1)
    assert cluster_for(graph, None, None).device.name == "v100_sxm2_32gb"
    assert cluster_for(graph, load_device("cpu_generic"), None).device.kind == "cpu"
    on_host = replace(graph, device_names=("", ""), nodes=graph.nodes.assign(stream=-1))
    assert cluster_for(on_host, None, None).device.name == "cpu_generic"
    with pytest.raises(InputError, match="device '' is not in the catalog"):
        cluster_for(replace(graph, device_names=("", "")), None, None)
    with pytest.raises(InputError, match=r"'Abacus' is not in the catalog.*pass hardware="):
        cluster_for(replace(graph, device_names=("Abacus", "Abacus")), None, None)
    with pytest.raises(InputError, match="ranks on"):
        cluster_for(replace(graph, device_names=("A", "B")), None, None)
    assert cluster().device.name == "v100"


def test_workers_read_links_as_their_card_states_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gnnperf.gnn.data.prepare.read_split", lambda root, axis: SPLIT)
    limited = replace(toy_run(0), placement=Placement(2, 125e6, 7e4))
    monkeypatch.setattr("gnnperf.gnn.data.runs.load_graph", lambda *_: limited)
    read_here = opened(DataConfig(path=str(tmp_path)))[1]
    for read_run in (read_here, pickle.loads(pickle.dumps(read_here))):  # workers are sent it
        assert read_run("a").cluster.inter.bucket_bytes == 7e4


def test_no_such_data_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such folder.*data\.path"):
        load_data(DataConfig(path=str(tmp_path / "nowhere")))


def on_cpu(run: str) -> RunGraph:
    result = read(run)
    device = load_device("cpu_generic")
    return replace(result, cluster=replace(result.cluster, device=device))


def test_runs_on_gpus_and_cpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="training runs on GPUs and on CPUs"):
        prepare(DataConfig(cache_dir=str(tmp_path)), SPLIT, lambda run: on_cpu(run) if run == "a" else read(run))


@pytest.mark.parametrize("part", ["e", "f"])
def test_what_learned_on_gpus_is_not_requested_about_cpus(tmp_path: Path, part: str) -> None:
    with pytest.raises(InputError, match=f"run '{part}' ran on a cpu, training runs on a gpu"):
        prepare(DataConfig(cache_dir=str(tmp_path)), SPLIT, lambda run: on_cpu(run) if run == part else read(run))


@pytest.mark.parametrize("recording", ["a", "a/1"])
def test_op_tables_of_another_processor_are_refused(tmp_path: Path, recording: str) -> None:
    carded(tmp_path / recording, Processor("Xeon CPU"))
    tables = ["datasets/cpu-lookups/ops.parquet"]
    config = DataConfig(path=str(tmp_path), cache_dir=str(tmp_path / "cache"), op_tables=tables)
    with pytest.raises(InputError, match=r"op tables of AMD EPYC, runs on Xeon CPU.*op_tables=\[\]"):
        prepare(config, replace(SPLIT, train=(recording,)), lambda run: replace(on_cpu(run[0]), run=run))


@dataclass(frozen=True)
class Held:
    values: np.ndarray
    name: str = "a"


def table(ops: list[str], categories: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"op": pd.Categorical(ops, categories), "us": [1.0, np.nan]})


def test_copies_are_equal() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert content_digest(Held(x), torch.from_numpy(x)) == content_digest(Held(x.copy()), torch.from_numpy(x).clone())
    assert content_digest(x[:, ::2]) == content_digest(x[:, ::2].copy())


def test_the_order_of_categories_does_not_count_that_of_rows_does() -> None:
    one = content_digest(table(["mm", "add"], ["add", "mm"]))
    assert content_digest(table(["mm", "add"], ["mm", "unused", "add"])) == one
    assert content_digest(table(["add", "mm"], ["add", "mm"])) != one


@pytest.mark.parametrize(("one", "other"), [
    (np.zeros(2), np.zeros(2, np.int64)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.array([0.0]), np.array([-0.0])),
    (np.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (Held(np.zeros(2)), Held(np.array([0.0, 1e-300]))),
    (Held(np.zeros(2)), Held(np.zeros(2), "b")),
    ([1, [2]], [[1], 2]),
    ((1, None), (1,)),
    ({"a": 1}, {"a": 2}),
    (np.array(["gnn", None], dtype=object), np.array(["gnn", "None"], dtype=object)),
    (pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [1, 2]}, dtype="int32")),
    (table(["mm", "add"], ["add", "mm"]), table(["mm", "add"], ["add", "mm"]).rename(columns={"us": "ms"})),
])  # fmt: skip
def test_what_differs_has_another_hash(one: object, other: object) -> None:
    assert content_digest(one) != content_digest(other)


def test_words_have_the_hash_of_one_after_the_other() -> None:
    expected = hashlib.sha256(b"tuple 1 list 2 str 2 'mm'str 3 'add'").hexdigest()[:32]
    assert content_digest(["mm", "add"]) == expected
    assert content_digest(["mm", "add"]) != content_digest(["mm", ("add",)])


def test_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="sort it"):
        content_digest({"a": {1, 2}})


# Every step of an epoch goes to exactly one process, in batches as large as those of one process.


def shares(size: int, batch_size: int, count: int) -> list[list[list[int]]]:
    """Process -> its batches."""
    return [list(SharedBatches(EpochShuffle(size, seed=3), batch_size, rank, count)) for rank in range(count)]


def test_one_process_takes_whole_batches() -> None:
    order = list(EpochShuffle(7, seed=3))
    assert shares(7, 3, 1) == [[order[:3], order[3:6], order[6:]]]


def test_two_processes_divide_each_batch_and_a_single_last_step_joins_the_batch_before() -> None:
    order = list(EpochShuffle(7, seed=3))
    assert shares(7, 3, 2) == [
        [[order[0], order[2]], [order[3], order[5]]],  # the second batch has 4 steps: 3, 4, 5 and the lone 6
        [[order[1]], [order[4], order[6]]],
    ]


@given(size=st.integers(1, 60), batch_size=st.integers(1, 9), count=st.integers(1, 5))
def test_each_step_once_and_no_process_without_work(size: int, batch_size: int, count: int) -> None:
    if min(size, batch_size) < count:
        with pytest.raises(InputError, match=r"data\.batch_size: .* processes share batches"):
            shares(size, batch_size, count)
        return
    result = shares(size, batch_size, count)
    assert sorted(step for batches in result for batch in batches for step in batch) == list(range(size))
    assert {len(batches) for batches in result} == {len(SharedBatches(EpochShuffle(size, 3), batch_size, 0, count))}
    assert all(batch for batches in result for batch in batches)
