"""Ctrl-C while something is written: exit code 130, what was there before is whole, and nothing lies next to it."""

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from gnnperf.analytic import Estimate, OpRow
from gnnperf.graph import build_graph, read_graph, write_graph
from gnnperf.hardware import load_device
from gnnperf.predict.op_estimates import OpEstimates, write_estimates
from gnnperf.report.compare.compare_cli import _write as write_comparison
from gnnperf.report.roofline.picture import write as write_roofline
from gnnperf.trace import read_run
from gnnperf.trace.storage import read_tables, write_run
from research.evaluation.cli import write_json
from tests.command import Command


def _estimates(path: Path) -> None:
    rows = (OpRow("aten::mm", ((2, 2), (2, 2)), ("float32",)),)
    estimates = OpEstimates(pd.DataFrame({"op": ["aten::mm"]}), rows, (Estimate(1.0, "memory"),), load_device("t4"))
    write_estimates(estimates, path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "interventions.json": lambda path: write_json(path, {"a": 1}),
    "answers.csv": _estimates,
    "change.html": lambda path: write_comparison(path, b"<!DOCTYPE html>"),
    "roofline.csv": lambda path: write_roofline(path, "title", ()),
}


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_whole_or_as_it_was(
    name: str, earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    if earlier:
        path.write_text("earlier")

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", interrupted)  # all is written, nothing is renamed
        WRITERS[name](path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == ([(name, "earlier")] if earlier else [])
    WRITERS[name](path)
    assert path.read_text() not in ("", "earlier")


def _interrupting(count: int, real: Callable[..., object]) -> Callable[..., object]:
    """Raises in place of the call number `count`."""
    calls: list[object] = []

    def interrupted(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == count:
            raise KeyboardInterrupt
        return real(*arguments)

    return interrupted


@pytest.mark.parametrize("count", [1, 2])
def test_earlier_folders_come_back_between_two_renames(
    count: int, small_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_run(small_trace)
    graph = build_graph(run)
    writers: dict[str, Callable[[Path], object]] = {
        "tables": lambda folder: write_run(run, folder),
        "graph": lambda folder: write_graph(graph, folder),
    }
    for name, write in writers.items():
        write(tmp_path / name)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("gnnperf.core.files._exchange", lambda one, other: False)  # as on some file systems
            patch.setattr(Path, "rename", _interrupting(count, Path.rename))
            write(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(writers)
    assert len(read_tables(tmp_path / "tables")) == 1
    assert read_graph(tmp_path / "graph").num_nodes == graph.num_nodes


def test_an_interrupted_import_ends_with_130_and_leaves_no_half_folder(
    small_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr("gnnperf.graph.storage._write", _interrupting(2, lambda *arguments: None))
    assert command.ended(130, "import", small_trace, "--out", tmp_path / "out")[1] == "gnnperf: interrupted\n"
    assert list(tmp_path.iterdir()) == []
