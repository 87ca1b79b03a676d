"""Graphs on disk and in the cache."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from toys import two_rank_graph
from traces import all_reduce, call, kernel, mark, op, run_of, trace

from gnnperf.core.errors import InputError
from gnnperf.graph import build_graph, load_graph, read_graph, storage, write_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.trace.storage import write_run
from gnnperf.trace.table import RunTrace


def run(gemm_us: float = 50.0) -> RunTrace:
    return run_of(
        trace(
            mark(0, 0, 100), op("aten::mm", 5, 30), call("cudaLaunchKernel", 10, 12, corr=1),
            kernel("gemm", 15, 15 + gemm_us, corr=1), mark(1, 100, 200), all_reduce(120, 130, size=4), world_size=4,
        )
    )  # fmt: skip


def assert_equal(a: ExecutionGraph, b: ExecutionGraph) -> None:
    pd.testing.assert_frame_equal(a.nodes, b.nodes, check_categorical=False)
    pd.testing.assert_frame_equal(a.edges, b.edges, check_categorical=False)
    assert replace(a, nodes=b.nodes, edges=b.edges) == b  # everything else


@pytest.mark.parametrize("graph", [build_graph(run()), two_rank_graph()], ids=["built", "toy"])
def test_round_trip(graph: ExecutionGraph, tmp_path: Path) -> None:
    write_graph(graph, tmp_path / "graph")
    assert_equal(read_graph(tmp_path / "graph"), graph)
    assert sorted(p.name for p in (tmp_path / "graph").iterdir()) == ["edges.parquet", "nodes.parquet"]
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]  # nothing next to


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_graph(build_graph(run(50)), tmp_path / "graph")
    write_graph(build_graph(run(70)), tmp_path / "graph")
    nodes = read_graph(tmp_path / "graph").nodes
    assert nodes.loc[nodes["event_name"] == "gemm", "latency_us"].tolist() == [70.0]
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"):
        write_graph(two_rank_graph(), tmp_path / "file" / "graph")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_failed_write_leaves_the_earlier_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(build_graph(run(50)), tmp_path / "graph")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "_write", full)
    with pytest.raises(InputError, match="No space left"):
        write_graph(build_graph(run(70)), tmp_path / "graph")
    monkeypatch.undo()
    assert_equal(read_graph(tmp_path / "graph"), build_graph(run(50)))
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("damage", ["empty", "no_edges", "not_parquet", "no_metadata", "other_columns"])
def test_what_is_no_graph_is_refused(damage: str, tmp_path: Path) -> None:
    directory = tmp_path / "graph"
    write_graph(two_rank_graph(), directory)
    if damage == "empty":
        (directory / "nodes.parquet").write_bytes(b"")
    elif damage == "no_edges":
        (directory / "edges.parquet").unlink()
    elif damage == "not_parquet":
        (directory / "nodes.parquet").write_text("{}")
    elif damage == "no_metadata":
        two_rank_graph().nodes.to_parquet(directory / "nodes.parquet")
    else:
        storage._write(pd.DataFrame({"a": [1]}), directory / "edges.parquet", b"{}")
    with pytest.raises(InputError):
        read_graph(directory)


def test_edges_that_end_nowhere_are_refused() -> None:
    graph = two_rank_graph()
    with pytest.raises(InputError, match="an edge ends at no node"):
        replace(graph, edges=graph.edges.assign(dst=99)).validate()
    with pytest.raises(InputError, match="not numbered by row"):
        replace(graph, nodes=graph.nodes.iloc[::-1]).validate()


def kineto(path: Path, gemm_us: int) -> Path:
    """A Kineto file of one op, one launch and one kernel."""
    lane, ids = {"ph": "X", "pid": 1, "tid": 1}, {"correlation": 1, "External id": 1}
    events = [
        {**lane, "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 30, "args": {"External id": 1}},
        {**lane, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 5, "args": ids},
        {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": 12, "dur": gemm_us,
         "args": {**ids, "device": 0, "stream": 7}},
    ]  # fmt: skip
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    return path


def test_the_fingerprint_changes_with_the_bytes_of_the_input(tmp_path: Path) -> None:
    file = kineto(tmp_path / "a.json.gz", 50)
    before = storage.fingerprint([file])
    assert storage.fingerprint([file]) == before
    assert storage.fingerprint([file], recording=2) != storage.fingerprint([file], recording=1)
    kineto(file, 51)
    assert storage.fingerprint([file]) != before


def test_the_fingerprint_changes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kineto(tmp_path / "a.json.gz", 50)
    before = storage.fingerprint([file])
    monkeypatch.setattr(storage, "code_of", lambda *_: "another")
    assert storage.fingerprint([file]) != before


def test_the_cache_serves_the_same_input_and_not_a_changed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, file = tmp_path / "cache", kineto(tmp_path / "a.json.gz", 50)
    first = load_graph(file, cache)
    monkeypatch.setattr(storage, "build_graph", _unexpected)
    assert_equal(load_graph(file, cache), first)
    monkeypatch.undo()
    second = load_graph(kineto(file, 51), cache)
    assert second.fingerprint != first.fingerprint
    assert len(list(cache.iterdir())) == 2


def _unexpected(run: RunTrace) -> ExecutionGraph:
    raise AssertionError(f"{run.name} should have come from the cache")


def test_saved_tables_and_their_run_give_the_same_graph(tmp_path: Path) -> None:
    write_run(run(), tmp_path / "toy")
    loaded = load_graph(tmp_path / "toy")
    assert loaded.warnings == ("3 of 4 ranks are missing: 1, 2, 3; waits for them cannot be explained",)
    assert_equal(replace(loaded, fingerprint="", warnings=()), build_graph(run()))


def test_an_absent_input_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_graph(tmp_path / "absent.json")


def test_what_is_no_graph_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "graph" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("not yours")
    with pytest.raises(InputError, match="holds other files"):
        write_graph(two_rank_graph(), tmp_path / "graph")
    (tmp_path / "file").write_text("a file")
    with pytest.raises(InputError, match="is a file"):
        write_graph(two_rank_graph(), tmp_path / "file")
    assert mine.read_text() == "not yours" and (tmp_path / "file").read_text() == "a file"


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    write_run(run(), tmp_path / "tables")
    (tmp_path / "cache").write_text("a file where the cache should be")
    graph = load_graph(tmp_path / "tables", tmp_path / "cache")
    assert graph.num_nodes > 0
    assert any("the graph is not cached" in warning for warning in graph.warnings)
