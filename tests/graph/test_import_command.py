"""`gnnperf import`: tables and graph in one folder, and what has no cost is named."""

from pathlib import Path

import pytest

from gnnperf.graph import load_graph, read_graph
from gnnperf.trace import read_run
from tests.command import Command
from tests.toys import make_graph
from tests.trace import kineto_files as files


@pytest.mark.parametrize("cores", [2, 1])  # tables next to the graph, or after it
def test_import_writes_tables_and_graph(
    cores: int, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnperf.core.copyable_cores", lambda: cores)
    traces = files.write_ranks(tmp_path / "traces", 2)
    shown = command.shown("import", traces, "--out", tmp_path / "out")
    graph = read_graph(tmp_path / "out" / "graph")
    assert graph.ranks == (0, 1)
    assert [t.meta.rank for t in read_run(tmp_path / "out").tables] == [0, 1]
    assert load_graph(tmp_path / "out").num_nodes == graph.num_nodes
    assert f"{graph.num_nodes:,} nodes" in shown


def test_one_of_two_recordings_is_imported_inspected_and_predicted(tmp_path: Path, command: Command) -> None:
    for number, kernel_us in ((1, 270), (2, 370)):
        events = [*files.step_events()[:4], files.device("gemm", 30, kernel_us, 901)]
        document = files.document(events, baseTimeNanoseconds=number * 10**12)
        files.write(tmp_path / "traces" / f"gpu7_42.{number * 10**12}.pt.trace.json", document)
    folder, out = tmp_path / "traces", tmp_path / "out"
    message = command.refused("import", folder, "--out", out)
    assert "holds 2 recordings. Allowed: 1: 1970-01-01 00:16:40 UTC" in message
    command.shown("inspect", folder, "--run", 2)
    command.shown("import", folder, "--run", 2, "--out", out)
    nodes = read_graph(out / "graph").nodes
    assert nodes["latency_us"][nodes["node_type"] == "compute"].tolist() == [370.0]
    words = ("predict", folder, "--run", 2, "--out", tmp_path / "predicted", "--set", "cache_dir=null")
    assert command.document(*words)["step_time_us"] == pytest.approx(400)  # the kernel begins at 30


def test_a_missing_trace_leaves_nothing(tmp_path: Path, command: Command) -> None:
    message = command.refused("import", tmp_path / "none.json", "--out", tmp_path / "out")
    assert "none.json: does not exist" in message and not (tmp_path / "out").exists()


def test_a_full_disk_leaves_the_earlier_import_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    words = ("import", files.write_ranks(tmp_path / "traces", 2), "--out", tmp_path / "out")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for has_earlier in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr("gnnperf.graph.storage._write", full)
            assert command.refused(*words).count("No space left on device") == 1
        assert sorted(p.name for p in tmp_path.iterdir()) == (["out", "traces"] if has_earlier else ["traces"])
        command.shown(*words)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["graph", "tables"]


def test_a_name_that_is_too_long_is_one_message(tmp_path: Path, command: Command) -> None:
    traces = files.write_ranks(tmp_path / "traces", 1)
    long = tmp_path / ("x" * 300)
    assert command.refused("import", traces, "--out", long).count("File name too long") == 1
    assert command.refused("import", long, "--out", tmp_path / "out").count("File name too long") == 1


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path, command: Command) -> None:
    traces = files.write_ranks(tmp_path / "traces", 1)
    for other in ("notes.txt", "tables/notes.txt", "graph/notes.txt"):
        path = tmp_path / "out" / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        command.refused("import", traces, "--out", tmp_path / "out")
        assert path.read_text() == "mine"
        path.unlink()


def test_ops_without_cost_are_counted_and_named() -> None:
    rows: list[dict[str, object]] = [
        {"node_type": "compute", "op_name": "my::kernel"},
        {"node_type": "compute", "op_name": "my::kernel"},
        {"node_type": "compute", "op_name": "aten::mm", "flops": 8.0},
        {"node_type": "compute", "op_name": "aten::view", "bytes": 0.0},
        {"node_type": "host", "op_name": "my::kernel"},
    ]
    assert make_graph(rows, []).ops_without_cost() == {"my::kernel": 2}
