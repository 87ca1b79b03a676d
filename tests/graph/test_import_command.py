"""`gnnperf import`: tables and graph in one folder, and what has no cost is named."""

import json
from pathlib import Path

import pytest

from gnnperf import cli
from gnnperf.graph import load_graph, read_graph
from gnnperf.trace import read_run
from tests.toys import make_graph
from tests.trace import kineto_files as files


def test_import_writes_tables_and_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = files.write_ranks(tmp_path / "traces", 2)
    assert cli.main(["import", str(traces), "--out", str(tmp_path / "out")]) == 0
    graph = read_graph(tmp_path / "out" / "graph")
    assert graph.ranks == (0, 1)
    assert [t.meta.rank for t in read_run(tmp_path / "out").tables] == [0, 1]
    assert load_graph(tmp_path / "out").num_nodes == graph.num_nodes
    assert f"{graph.num_nodes:,} nodes" in capsys.readouterr().out


def test_one_of_two_recordings_is_imported_inspected_and_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, kernel_us in ((1, 270), (2, 370)):
        events = [*files.step_events()[:4], files.device("gemm", 30, kernel_us, 901)]
        document = files.document(events, baseTimeNanoseconds=number * 10**12)
        files.write(tmp_path / "traces" / f"gpu7_42.{number * 10**12}.pt.trace.json", document)
    folder, out = str(tmp_path / "traces"), tmp_path / "out"
    assert cli.main(["import", folder, "--out", str(out)]) == 2
    assert "holds 2 recordings. Allowed: 1: 1970-01-01 00:16:40 UTC" in capsys.readouterr().err
    assert cli.main(["inspect", folder, "--run", "2"]) == 0
    assert cli.main(["import", folder, "--run", "2", "--out", str(out)]) == 0
    nodes = read_graph(out / "graph").nodes
    assert nodes["latency_us"][nodes["node_type"] == "compute"].tolist() == [370.0]
    capsys.readouterr()
    options = ["--out", str(tmp_path / "predicted"), "--json", "--set", "cache_dir=null"]
    assert cli.main(["predict", folder, "--run", "2", *options]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_us"] == pytest.approx(400)  # the kernel begins at 30


def test_a_missing_trace_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", str(tmp_path / "none.json"), "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    assert "none.json: does not exist" in capsys.readouterr().err


def test_a_full_disk_leaves_the_earlier_import_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["import", str(files.write_ranks(tmp_path / "traces", 2)), "--out", str(tmp_path / "out")]

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for has_earlier in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr("gnnperf.graph.storage._write", full)
            assert cli.main(command) == 2
        assert capsys.readouterr().err.count("No space left on device") == 1
        assert sorted(p.name for p in tmp_path.iterdir()) == (["out", "traces"] if has_earlier else ["traces"])
        assert cli.main(command) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["graph", "tables"]


def test_a_name_that_is_too_long_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = files.write_ranks(tmp_path / "traces", 1)
    assert cli.main(["import", str(traces), "--out", str(tmp_path / ("x" * 300))]) == 2
    assert capsys.readouterr().err.count("File name too long") == 1


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = files.write_ranks(tmp_path / "traces", 1)
    for other in ("notes.txt", "tables/notes.txt", "graph/notes.txt"):
        path = tmp_path / "out" / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        assert cli.main(["import", str(traces), "--out", str(tmp_path / "out")]) == 2
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
