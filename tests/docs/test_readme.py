"""The three commands of README's first screen, on the trace that they name, print what README shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.made.pages import ROOT
from gnnperf.cli import main

SECTION = re.compile(r"## Three commands on a GPU trace\n(.*?)\n## ", re.DOTALL)


@pytest.mark.mirror
def test_three_commands_print_what_readme_shows(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    match = SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert match is not None
    commands = re.findall(r"^    (gnnperf .*)$", match[1], re.MULTILINE)
    shown = [block.splitlines() for block in re.findall(r"```text\n(.*?)```", match[1], re.DOTALL)]
    assert (len(commands), len(shown)) == (3, 2)
    printed = []
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
        printed.append(capsys.readouterr().out)
    for lines, text in zip(shown, printed[1:], strict=True):
        rest = iter(text.splitlines())
        for line in lines:  # in order; README shortens long ones
            assert any(one.startswith(line) for one in rest), line
