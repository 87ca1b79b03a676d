"""Python on pages compiles, names what there is, and runs where it reads a recording of the repository."""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest

from docs.made.markdown import Block, blocks
from docs.made.pages import ROOT, written_pages
from gnnperf import datasets
from gnnperf.gnn.data.prepare import PreparedData


def _every() -> Iterator[tuple[str, Block]]:
    for page in written_pages():
        for block in blocks((ROOT / page).read_text(encoding="utf-8")):
            # A block in a fence names its language; README's are indented and begin with an import.
            if block.language == "python" or (not block.language and block.text.startswith(("import ", "from "))):
                yield f"{page}, line {block.first + 1}", block


BLOCKS = dict(_every())


def _imported(code: str) -> Iterator[tuple[str, str | None]]:
    """(module, name in it or None) for every import of the code."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)


def _missing(code: str) -> list[str]:
    result = []
    for module, name in _imported(code):
        if importlib.util.find_spec(module) is None:
            result.append(module)
        elif name is not None and not hasattr(importlib.import_module(module), name):
            result.append(f"{module}.{name}")
    return result


@pytest.mark.parametrize("where", BLOCKS)
def test_imports_of_code_on_pages_exist(where: str) -> None:
    assert _missing(BLOCKS[where].text) == []


@pytest.mark.parametrize("where", [where for where, block in BLOCKS.items() if '"datasets/' in block.text])
def test_code_that_reads_a_recording_runs(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(BLOCKS[where].text, where, "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("where", [where for where, block in BLOCKS.items() if "ExecutionGraphs(" in block.text])
def test_code_on_data_sets_runs(where: str, data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "prepared", lambda *_: data)
    exec(compile(BLOCKS[where].text, where, "exec"), {})


def test_what_is_not_there_is_detected() -> None:
    assert _missing("import gnnperf.nothing\nfrom gnnperf.graph import build_graph, build_grape\n") == [
        "gnnperf.nothing", "gnnperf.graph.build_grape",
    ]  # fmt: skip
    assert len(BLOCKS) >= 5


@pytest.fixture
def forms() -> ModuleType:
    """Docstrings as the reference reads them."""
    return pytest.importorskip("docs.made.docstring_forms", reason="the extra 'docs' is missing", exc_type=ImportError)


def test_a_drawing_becomes_a_block(forms: ModuleType) -> None:
    text = "What it does.\n\nstep 0   |-- host --|\n         |   gpu  --|\n\nMore words."
    assert forms.with_drawings(text).split("\n\n")[1] == "```text\nstep 0   |-- host --|\n         |   gpu  --|\n```"
    assert forms.with_drawings("Args:\n    a: words   apart.") == "Args:\n    a: words   apart."


def test_an_entry_of_two_becomes_two(forms: ModuleType) -> None:
    text = "Attributes:\n    low, high: bounds,\n        of both.\n    other: one."
    assert forms.with_entries(text) == (
        "Attributes:\n    low: bounds,\n        of both.\n    high: bounds,\n        of both.\n    other: one."
    )
