"""Quick commands of pages with output run in order, and print what the pages show."""

import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.made.markdown import blocks
from docs.made.tutorial import PAGES, TERMINAL, WALKTHROUGH, commands, missing, parts_of, prepare, renewed, run
from gnnperf.cli import main

Call = Callable[[str, Path], str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process, which has loaded everything already; what it prints."""
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)

    def run_here(command: str, folder: Path) -> str:
        program, *words = shlex.split(command)
        monkeypatch.chdir(folder)
        if program == "gnnperf":
            assert main(words) == 0, command
        else:
            assert program == "python", command
            monkeypatch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        return capsys.readouterr().out

    return run_here


@pytest.mark.parametrize("page", [
    pytest.param(page, id=page.stem, marks=[pytest.mark.ci] if page.stem != "tutorial" else []) for page in PAGES
])  # fmt: skip
@pytest.mark.timeout(400)
def test_quick_commands_print_what_the_page_shows(
    page: Path, tmp_path: Path, call: Call, request: pytest.FixtureRequest
) -> None:
    if page == WALKTHROUGH:
        request.getfixturevalue("mirror")  # or it is skipped
    prepare(tmp_path)
    parts = [part for part in parts_of(page.read_text(encoding="utf-8")) if not part.is_slow]
    assert len(parts) >= 5
    for part in parts:
        assert part.shown is not None
        assert missing(part.shown.lines, run(part, tmp_path, call)) == [], (
            f"{part.commands}; see docs/made/tutorial.py, --write"
        )


def test_lines_that_are_not_printed_are_detected() -> None:
    printed = "a  1\nb 2\nc 3\n"
    assert missing(["a 1", "", "c 3"], printed) == []
    assert missing(["c 3", "a 1", "d"], printed) == ["a 1", "d"]


def test_shown_lines_take_the_figures_printed_now() -> None:
    assert renewed(["step: 10 ms", "", "no such line anywhere"], "x\nstep: 12.5 ms\n") == [
        "step: 12.5 ms", "", "no such line anywhere",
    ]  # fmt: skip


def test_parts_know_their_output_and_whether_they_are_slow() -> None:
    text = "<!-- slow: why -->\n```sh\nmake a \\\n  b\n# no command\n```\n\n```text\nout\n```\n\n```sh\nc\n```\n"
    slow, quick = parts_of(text)
    assert (slow.commands, slow.is_slow, quick.commands, quick.shown) == (("make a b",), True, ("c",), None)
    assert slow.shown is not None and slow.shown.lines == ("out",)
    assert commands(blocks("```sh\na\n\nb\n```\n")[0]) == ("a", "b")
