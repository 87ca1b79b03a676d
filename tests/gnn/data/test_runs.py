"""Recordings and their cards as examples: mean labels, step times from cards or traces, typical steps on disk."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
from synthetic import read

from gnnperf.core import WORK_TYPES, InputError
from gnnperf.gnn.data import runs
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.recordings import Processor, processors_of, read_recordings
from gnnperf.gnn.data.runs import IsolatedLabels, Recorded, RunGraph, RunStep, merged, run_of, typical, workload_of
from gnnperf.hardware import load_device
from tests.gnn.data.data_sets import carded, write_card
from tests.trace import kineto_files as files


def recording(name: str, latency_us: float, step_us: float = 100.0) -> RunStep:
    result = read("a")
    nodes = result.graph.nodes.assign(latency_us=latency_us)
    isolated = np.full(result.graph.num_nodes, latency_us)
    labels = IsolatedLabels(isolated, isolated / 2)
    return RunStep(name, replace(result.graph, nodes=nodes, fingerprint=name), result.cluster, step_us, labels)


def labels(step: RunStep) -> set[float]:
    nodes = step.graph.nodes
    return set(nodes["latency_us"][nodes["node_type"].isin([str(t) for t in WORK_TYPES])])


@pytest.mark.parametrize(
    ("name", "run"), [("gpt/1", "gpt"), ("gpt/12", "gpt"), ("gpt", "gpt"), ("torchrec/a2a", "torchrec/a2a"), ("1", "1")]
)
def test_repeats_belong_to_one_run(name: str, run: str) -> None:
    assert run_of(name) == run


def test_recordings_of_a_run_become_one_example_with_mean_labels() -> None:
    first, other, second = recording("x/1", 2.0, 100.0), recording("y/1", 7.0), recording("x/2", 4.0, 120.0)
    result = merged([first, other, second])
    assert [step.run for step in result] == ["x", "y"]
    assert labels(result[0]) == {3.0}
    assert result[0].step_us == 110.0
    for values, expected in ((result[0].isolated.usual_us, 3.0), (result[0].isolated.steady_us, 1.5)):
        assert set(values[np.isin(result[0].graph.nodes["node_type"], list(map(str, WORK_TYPES)))]) == {expected}
    assert result[0].graph.fingerprint != first.graph.fingerprint
    assert labels(result[1]) == {7.0}


def test_a_label_of_one_recording_is_retained() -> None:
    first, second = recording("x/1", 2.0), recording("x/2", np.nan)
    assert labels(merged([first, second])[0]) == {2.0}


def test_the_workload_is_what_the_card_states(tmp_path: Path) -> None:
    assert workload_of(tmp_path) == ""  # no card; a run's name states nothing
    named = '{"workload": "library", "parameters": {"model": "bert"}}'
    for card, workload in (("{}", ""), ('{"workload": null}', ""), ('{"workload": "dlrm"}', "dlrm"), (named, "bert")):
        (tmp_path / "run.json").write_text(card)
        assert workload_of(tmp_path) == workload
    for broken, message in ((b"[", "not JSON"), (b"[" * 100_000, "nested deeper"), (b'{"\xff"', "not JSON")):
        (tmp_path / "run.json").write_bytes(broken)
        with pytest.raises(InputError, match=message):
            workload_of(tmp_path)


def test_a_step_keeps_the_workload() -> None:
    steps = [typical(replace(read("a"), run=name, workload="dlrm")) for name in ("x/1", "x/2")]
    assert [s.workload for s in (*steps, *merged(steps))] == ["dlrm"] * 3


def test_the_typical_step_of_a_run() -> None:
    run = read("a")
    step = typical(run)
    assert step.graph.nodes["latency_us"].tolist() == pytest.approx(run.graph.nodes["latency_us"].tolist(), nan_ok=True)
    assert step.step_us == run.graph.steps[0].makespan_us  # a window of one step has no period
    with pytest.raises(InputError, match="no whole step"):
        typical(replace(run, graph=replace(run.graph, steps=())))


def _repeated(step_us: list[float | None], gemm_us: list[float]) -> RunGraph:
    """The toy, a step after the other: periods, and what the gemms took in each."""
    run = read("a")
    one = run.graph.nodes[~run.graph.nodes["node_type"].isin(["device", "link"])]
    gemm = (one["node_type"] == "compute").to_numpy()
    tables = [one.assign(step=k, latency_us=np.where(gemm, us, 1.0), start_us=1000.0 * k + np.arange(len(one)))
              for k, us in enumerate(gemm_us)]  # fmt: skip
    hardware = run.graph.nodes.iloc[len(one) :]
    nodes = pd.concat([*tables, hardware], ignore_index=True)
    nodes = nodes.assign(node_id=np.arange(len(nodes)), node_type=nodes["node_type"].astype("category"))
    label = run.graph.steps[0]
    steps = tuple(replace(label, step=k, period_us=us) for k, us in enumerate(step_us))
    edges = run.graph.edges.iloc[:0]
    return replace(run, graph=replace(run.graph, nodes=nodes, edges=edges, steps=steps))


def test_only_steps_of_about_the_median_time_tell_what_a_schedule_adds_up() -> None:
    """The first step has no period, the third one stalls: their gemms count for the usual mean only."""
    result = typical(_repeated([None, 100.0, 900.0, 104.0], [7.0, 10.0, 400.0, 12.0]))
    gemm = (result.graph.nodes["node_type"] == "compute").to_numpy()
    assert result.step_us == 104.0
    assert set(result.graph.nodes["latency_us"][gemm]) == {107.25}
    assert result.isolated.usual_us[gemm] == pytest.approx([107.25, 107.25])
    assert result.isolated.steady_us[gemm] == pytest.approx([11.0, 11.0])


def recorded(root: Path, *kernel_us: int) -> Recorded:
    """A recording `a` with one op per step, whose kernels take `kernel_us`, and what reads it."""
    events = []
    for step, duration_us in enumerate(kernel_us):
        at = step * files.STEP_US
        events += [files.host(f"ProfilerStep#{step}", at, files.STEP_US - 1, "user_annotation"),
                   files.host("aten::mm", at + 10, 50), files.call("cudaLaunchKernel", at + 20, 5, at + 10),
                   files.device("gemm", at + 30, duration_us, at + 10)]  # fmt: skip
    files.write(root / "a" / "rank_0.json", files.document(events, 0, 4))
    return Recorded({"a": root}, root / "cache", (None, None))


def kernel_us(step: RunStep) -> list[float]:
    nodes = step.graph.nodes
    return nodes["latency_us"][nodes["node_type"] == "compute"].tolist()


def test_a_step_that_is_read_is_the_one_that_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = recorded(tmp_path, 30, 40)
    made, first = typical(read("a")), read.typical("a")
    for table in ("nodes", "edges"):
        pd.testing.assert_frame_equal(getattr(first[1].graph, table), getattr(read.typical("a")[1].graph, table))
    monkeypatch.setattr(runs, "read_run", None)  # would fail if it were called
    for key, step in (first, read.typical("a")):
        assert key == first[0] and kernel_us(step) == [35.0]  # mean of 30 and 40
        assert content_digest(vars(step)) == content_digest(vars(made))
        assert step.graph.cross_step is not None and step.graph.fingerprint == made.graph.fingerprint != ""


@pytest.mark.parametrize("name", ["nodes.parquet", "edges.parquet", "labels.npz"])
def test_a_damaged_step_is_made_anew(tmp_path: Path, name: str) -> None:
    read = recorded(tmp_path, 30, 40)
    key, step = read.typical("a")
    path = tmp_path / "cache" / "steps" / key / name
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        assert content_digest(vars(read.typical("a")[1])) == content_digest(vars(step))
        assert path.stat().st_size == len(whole)
    path.unlink()
    assert kernel_us(read.typical("a")[1]) == [35.0] and path.is_file()
    assert [one.name for one in (tmp_path / "cache" / "steps").iterdir()] == [key]


def test_another_recording_or_device_has_a_step_of_its_own(tmp_path: Path) -> None:
    first, _ = recorded(tmp_path, 30, 40).typical("a")
    read = recorded(tmp_path, 30, 60)  # in its place
    changed, step = read.typical("a")
    assert kernel_us(step) == [45.0] and changed != first
    on_cpu = Recorded(read.roots, read.cache_dir, (load_device("cpu_generic"), None)).typical("a")
    assert on_cpu[1].cluster.device.name == "cpu_generic" and step.cluster.device.kind == "gpu"
    assert len({first, changed, on_cpu[0]}) == len(list((tmp_path / "cache" / "steps").iterdir())) == 3


def test_a_recording_that_cannot_be_read_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = recorded(tmp_path, 30, 40)
    monkeypatch.setattr(runs, "load_graph", MagicMock(side_effect=InputError("no trace")))
    with pytest.raises(InputError, match="no trace"):
        read.typical("a")
    assert not (tmp_path / "cache").exists()


def test_runs_and_repeats_as_the_cards_describe_them(tmp_path: Path) -> None:
    write_card(tmp_path / "b" / "1", 100.0)
    write_card(tmp_path / "a" / "10", 300.0, link={"medium": "loopback"})
    write_card(tmp_path / "a" / "2", 200.0)
    result = read_recordings(tmp_path)
    assert list(result) == ["a", "b"]
    assert list(result["a"]) == [2, 10]
    one = result["b"][1]
    assert (one.name, one.unprofiled_us, one.profiled_us) == ("b/1", 100.0, pytest.approx(110.0))
    assert (one.workload, one.link, one.world_size, one.machine) == ("dlrm", "veth 1 Gbit/s", 2, "f00d")
    assert result["a"][10].link == "loopback"


def test_broken_rejected_and_other_folders_are_left_out(tmp_path: Path) -> None:
    write_card(tmp_path / "a" / "1", 100.0)
    write_card(tmp_path / "a" / "2", 100.0, status="rejected")
    write_card(tmp_path / "b" / "1", 100.0, status="broken", step_time=None)
    write_card(tmp_path / "examples" / "a", 100.0)
    assert {run: list(repeats) for run, repeats in read_recordings(tmp_path).items()} == {"a": [1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_time": {}}, "no step time without profiler"),
        ({"step_time": None}, "no step time"),
        ({"step_time": {"without_profiler": {"median_us": 0.0}}}, "0.0 us"),
    ],
)
def test_cards_without_step_times_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    write_card(tmp_path / "a" / "1", 100.0, **changes)
    with pytest.raises(InputError, match=message):
        read_recordings(tmp_path)


def test_an_empty_folder_and_a_broken_card_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no complete recordings"):
        read_recordings(tmp_path)
    write_card(tmp_path / "a" / "1", 100.0)
    (tmp_path / "a" / "1" / "run.json").write_text("[1")
    with pytest.raises(InputError, match="not JSON"):
        read_recordings(tmp_path)
    (tmp_path / "a" / "1" / "run.json").write_text("[1]")
    with pytest.raises(InputError, match="not a JSON object"):
        read_recordings(tmp_path)


def test_every_rank_of_every_run_once(tmp_path: Path) -> None:
    epyc, xeon = Processor("Epyc"), Processor("Xeon")
    runs = [carded(tmp_path / "a", epyc, xeon), carded(tmp_path / "b", epyc), tmp_path / "no card"]
    assert processors_of(runs) == (epyc, xeon)


def test_what_vectors_a_processor_has_reports_two_of_one_name_apart(tmp_path: Path) -> None:
    devices = [{"kind": "cpu", "name": "Epyc", "capability": given} for given in ("AVX512", "AVX2", 7, "a\nb")]
    result = processors_of([carded(tmp_path / "a", *devices)])
    assert result == (
        unknown := Processor("Epyc"),
        older := Processor("Epyc", "AVX2"),
        newer := Processor("Epyc", "AVX512"),
    )
    assert not older.may_be(newer) and older.may_be(unknown) and newer.may_be(newer)
    assert [str(one) for one in result] == ["Epyc", "Epyc (AVX2)", "Epyc (AVX512)"]


@pytest.mark.parametrize("ranks", [None, {"0": {}}, [None], [{}], [{"device": "cpu"}], [{"device": {"kind": "cpu"}}],
                                   [{"device": {"kind": "cpu", "name": 7}}], [{"device": {"kind": "cpu", "name": ""}}],
                                   [{"device": {"kind": "cpu", "name": "a\nb"}}],
                                   [{"device": {"kind": "gpu", "name": "NVIDIA H100"}}]])  # fmt: skip
def test_a_card_of_gpus_or_not_as_the_recorder_writes_it_names_nothing(tmp_path: Path, ranks: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"ranks": ranks}))
    assert processors_of([tmp_path]) == ()


def test_words_that_name_no_product_are_left_out(tmp_path: Path) -> None:
    named = [Processor("Intel(R) Xeon(R) of ann on gpu7.example.org"), Processor("x" * 1000)]
    assert processors_of([carded(tmp_path / "a", *named)]) == (Processor("Intel(R) Xeon(R)"),)
