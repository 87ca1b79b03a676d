"""`gnnperf import`: tables and graph in one folder, and what has no cost is named."""

from __future__ import annotations

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
