from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic import cluster
from toys import two_rank_graph

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.runs import RunGraph
from gnnperf.trace.public.catalog import Entry, load_catalog
from research.benchmarks._public_families import ASLEEP, FAMILIES, ONE_PASS, PublicRuns, family_of, one_step, program
from research.benchmarks._public_runs import Recording, recordings
from research.benchmarks.public_families import only, pooled
from tests.research.evaluation.made_records import made


def runs() -> PublicRuns:
    """Three families of toys, one recording of torchrec's asleep."""
    family = {"t/1": "torchrec", "t/2": "torchrec", "s/1": "torchrec", "r/1": "residual", "m/1": "megatron"}
    graphs = {name: RunGraph(name, two_rank_graph(), cluster(), own) for name, own in family.items()}
    return PublicRuns(graphs, family, ("s/1",), ())


def test_a_family_is_judged_and_never_learned_from() -> None:
    split = runs().split("torchrec")
    assert (split.train, split.val, split.test) == (("m/1",), ("r/1",), ("t/1", "t/2", "s/1"))
    last = runs().split("megatron")
    assert (last.train, last.val, last.test) == (("r/1",), ("t/1", "t/2"), ("m/1",))  # who sleeps teaches no one


def test_a_family_without_recordings_is_refused() -> None:
    with pytest.raises(InputError, match=r"family switch: no recording can be read.*torchrec, residual, megatron"):
        runs().split("switch")


def test_recordings_of_the_catalog_have_one_family() -> None:
    names = [result.name for result in recordings([entry for entry in load_catalog() if entry.run])]
    for name in names:
        assert sum(name.startswith(begins) for begins in FAMILIES.values()) <= 1, name
    assert all(any(name.startswith(begins) for name in names) for every in FAMILIES.values() for begins in every)
    assert {family_of(name) for name in ASLEEP} == {"torchrec"} and set(ASLEEP) <= set(names)
    assert set(ONE_PASS) <= set(FAMILIES)
    assert family_of("zoology-trace") is None


def test_one_typical_step_with_the_median_label() -> None:
    graph = two_rank_graph()
    result = one_step(RunGraph("toy", graph, cluster(), "x"))
    assert [step.makespan_us for step in result.graph.steps] == [185.0]
    assert result.graph.num_nodes == graph.num_nodes and result.workload == "x"


def test_a_program_is_its_ops_shapes_and_hardware() -> None:
    graph = two_rank_graph()
    slower = replace(graph, nodes=graph.nodes.assign(latency_us=2 * graph.nodes["latency_us"]))
    assert program(slower) == program(graph)
    wider = graph.nodes["input_dims"].astype(object).str.replace("512", "1024")
    assert program(replace(graph, nodes=graph.nodes.assign(input_dims=wider))) != program(graph)
    assert program(replace(graph, device_names=("A100",) * 2)) != program(graph)


def test_records_are_parted_and_pooled() -> None:
    record = made()
    assert record.nodes is not None
    part = only(record, ["c/1", "a/1"])
    assert part is not None and part.nodes is not None
    assert part.steps["run"].tolist() == ["a", "c"] and part.nodes["recording"].tolist() == [0, 1]
    assert part.nodes["predicted_us"].tolist() == pytest.approx([11.0, 14.0])
    assert only(record, ["x/1"]) is None
    both = pooled([record, part])
    assert both.nodes is not None
    assert both.steps["run"].tolist() == ["a", "b", "c", "a", "c"]
    assert both.nodes["recording"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(pooled([made(nodes=False)]).steps, pd.DataFrame) and pooled([made(nodes=False)]).nodes is None
    assert np.isfinite(both.steps["predicted_us"]).all()


# --- which files were recorded together -------------------------------------------------------------------------------


RANK0 = Entry(
    name="me+mine/a/r0.pt.trace.json.gz", kind="kineto", run="mine/x y", repo="me/mine", commit="c" * 40,
    path="a/r0.json", size_bytes=10, sha256="1" * 64, mirror_sha256="2" * 64, license="MIT", gpu=None, rank=0,
    world_size=2, steps=None, with_shapes=None, scrubbed=None, note=None,
)  # fmt: skip
RANK1 = replace(RANK0, name="me+mine/a/r1.pt.trace.json.gz", path="a/r1.json", rank=1)


def test_ranks_of_a_run_belong_together_with_their_execution_trace() -> None:
    linked = replace(RANK0, name="me+mine/a/et.json.gz", path="a/et.json", kind="execution-trace", rank=None)
    table = replace(RANK0, name="me+mine/gemm.csv", kind="op-table", run=None)
    assert recordings([RANK1, table, linked, RANK0]) == (Recording("mine-x-y", (linked, RANK0, RANK1)),)


def test_files_that_are_not_known_to_be_ranks_are_recordings_of_their_own() -> None:
    result = recordings([replace(RANK0, rank=None), replace(RANK1, rank=None, sha256="3" * 64)])
    assert [r.name for r in result] == ["mine-x-y-11111111", "mine-x-y-33333333"]
    assert [len(r.entries) for r in result] == [1, 1]


def test_versions_of_one_file_are_recordings_of_their_own() -> None:
    newer = replace(RANK0, name="me+mine/a/new__r0.json.gz", rank=1, sha256="3" * 64)
    assert [r.name for r in recordings([RANK0, newer])] == ["mine-x-y-33333333", "mine-x-y-11111111"]


def test_recordings_of_the_shipped_catalog_have_names_of_their_own() -> None:
    result = {r.name: r for r in recordings(load_catalog())}
    assert len(result) == len(recordings(load_catalog()))
    assert len(result["torchrec-trace-sst_long_a2a_optimizer_5_qcomm-a"].entries) == 4
    assert len(result["megatron-tp2"].entries) == 4
    assert len(result["dlrm-8"].entries) == 2
