"""Graphs on disk and in the cache."""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from toys import two_rank_graph
from traces import all_reduce, call, kernel, mark, op, run_of, trace

from gnnperf.core.errors import InputError
from gnnperf.graph import ExecutionGraph, build_graph, load_graph, load_run, load_step, read_graph, storage, write_graph
from gnnperf.trace import EVERYTHING, RunTrace
from gnnperf.trace.storage import write_run
from tests.graph.test_no_leakage import assert_same_values
from tests.trace.kineto_files import call as call_of
from tests.trace.kineto_files import device, document, host, marked_steps, write


def run(gemm_us: float = 50.0) -> RunTrace:
    return run_of(
        trace(
            mark(0, 0, 100), op("aten::mm", 5, 30), call("cudaLaunchKernel", 10, 12, corr=1),
            kernel("gemm", 15, 15 + gemm_us, corr=1), mark(1, 100, 200), all_reduce(120, 130, size=4), world_size=4,
        )
    )  # fmt: skip


def assert_equal(a: ExecutionGraph, b: ExecutionGraph) -> None:
    assert_same_values(a.nodes, b.nodes)
    assert_same_values(a.edges, b.edges)
    assert replace(a, nodes=b.nodes, edges=b.edges) == b  # everything else


@pytest.mark.parametrize("graph", [build_graph(run()), two_rank_graph()], ids=["built", "toy"])
def test_round_trip(graph: ExecutionGraph, tmp_path: Path) -> None:
    write_graph(graph, tmp_path / "graph")
    assert_equal(read_graph(tmp_path / "graph"), graph)
    assert sorted(p.name for p in (tmp_path / "graph").iterdir()) == ["edges.parquet", "nodes.parquet"]
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]  # nothing next to


WRITERS: dict[str, Callable[[Path], object]] = {
    "graph": lambda folder: write_graph(two_rank_graph(), folder), "tables": lambda folder: write_run(run(), folder),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_not_ours_is_not_replaced(name: str, tmp_path: Path) -> None:
    mine, file = tmp_path / "folder" / "thesis.tex", tmp_path / "file"
    mine.parent.mkdir()
    for path in (mine, file):
        path.write_text("not yours")
    for folder, message in ((mine.parent, "holds other files.*thesis"), (file, "is a file"),
                            (file / "in", "cannot be written")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            WRITERS[name](folder)
    assert [path.read_text() for path in (mine, file)] == ["not yours"] * 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "thesis.tex"]


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
    with pytest.raises(InputError, match="column 'phase' has dtype object"):
        replace(graph, nodes=graph.nodes.astype({"phase": object})).validate()


def kineto(path: Path, gemm_us: int) -> Path:
    """A Kineto file of one op, one launch and one kernel."""
    events = [
        host("aten::mm", 0, 30, **{"External id": 1}),
        call_of("cudaLaunchKernel", 5, 5, 1),
        device("gemm", 12, gemm_us, 1),
    ]
    return write(path, document(events, None), packed=True)


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
    monkeypatch.setattr(storage.core, "code_of", lambda *_: "another")
    assert storage.fingerprint([file]) != before


def test_the_cache_serves_the_same_input_and_not_a_changed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, file = tmp_path / "cache", kineto(tmp_path / "a.json.gz", 50)
    first = load_graph(file, cache)
    monkeypatch.setattr("gnnperf.graph.build.build_graph", _unexpected)
    assert_equal(load_graph(file, cache), first)
    monkeypatch.undo()
    second = load_graph(kineto(file, 51), cache)
    assert second.fingerprint != first.fingerprint
    assert len(list(cache.iterdir())) == 2


def test_events_of_other_steps_are_free_when_memory_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, alive = marked_steps(tmp_path / "rank_0.json"), []
    graph = load_graph(file)
    (table,) = load_run((file,), None, EVERYTHING, graph.fingerprint).tables
    of_all, num_events = weakref.ref(table), len(table.events)
    del table
    monkeypatch.setattr(storage.core, "return_freed_memory", lambda: alive.append(of_all()))
    (step,) = load_step((file,), None, EVERYTHING, graph.fingerprint, graph.steps[1].name).tables
    assert alive == [None] and len(step.events) < num_events / 3


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


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    write_run(run(), tmp_path / "tables")
    (tmp_path / "cache").write_text("a file where the cache should be")
    graph = load_graph(tmp_path / "tables", tmp_path / "cache")
    assert graph.num_nodes > 0
    assert any("the graph is not cached" in warning for warning in graph.warnings)


def test_a_large_graph_is_cached_by_a_copy_until_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storage.core, "MANY_ROWS", 1)
    write_run(run(), tmp_path / "tables")
    (tmp_path / "file").write_text("a file where the cache should be")
    for cache in (tmp_path / "cache", tmp_path / "file"):
        with ExitStack() as meanwhile:
            graph = load_graph(tmp_path / "tables", cache, meanwhile=meanwhile)
    assert_equal(read_graph(next((tmp_path / "cache").iterdir())), graph)
    assert capsys.readouterr().err.count("the graph is not cached") == 1
