"""The commands of README's first screens, on the trace that they name, print and draw what README shows."""

import io
import re
import shlex
from contextlib import chdir, redirect_stdout
from pathlib import Path

import pytest

from docs.made.pages import ROOT
from docs.made.screenshots import FOLDER, difference, note_of, pictures, report_of
from docs.made.tutorial import TERMINAL, readme_commands
from gnnperf.cli import main
from tests.chromium import chromium

MOST_DIFFERENT = 0.02  # share of pixels, with the same fonts
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
pytestmark = [pytest.mark.mirror, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In which the commands run."""
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def printed(mirror: Path, folder: Path) -> list[str]:
    """What each command prints."""
    result = []
    for command in readme_commands():
        with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(io.StringIO()) as onto:
            patch.setenv("COLUMNS", TERMINAL["COLUMNS"])
            assert main(shlex.split(command)[1:]) == 0
        result.append(onto.getvalue())
    return result


def test_commands_print_what_readme_shows(printed: list[str]) -> None:
    shown = [block.splitlines() for block in re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)]
    assert (len(printed), len(shown)) == (4, 3)
    for lines, text in zip(shown, printed[1:], strict=True):
        rest = iter(text.splitlines())
        for line in lines:  # in order; README shortens long ones
            assert any(one.startswith(line) for one in rest), line


@pytest.mark.skipif(chromium() is None, reason="no Chromium on the PATH (Debian: apt install chromium)")
def test_pictures_are_those_of_the_third_command(printed: list[str], folder: Path) -> None:
    for name, png in pictures(folder / report_of(printed[2])).items():
        shipped = (FOLDER / name).read_bytes()
        before, now = note_of(shipped), note_of(png)
        assert before["texts"] == now["texts"], "python -m docs.made.screenshots takes the pictures anew"
        if png != shipped and before["ruler"] == now["ruler"]:  # else this machine has other fonts
            assert difference(shipped, png) < MOST_DIFFERENT, name
