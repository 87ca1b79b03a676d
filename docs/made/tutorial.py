"""Run the commands of pages that show their output, as a reader would, and compare what they print.

The tutorial, the what-if cookbook, and the walkthrough of a public trace (GNNPERF_DATA_MIRROR, or a network).

python -m docs.made.tutorial             the quick ones
python -m docs.made.tutorial --slow      also those below a comment <!-- slow: ... -->
python -m docs.made.tutorial --write     put what was printed into the pages, line for line

A block of commands (sh) may be followed by a block of what they print (text). It may leave lines out; those that it has
must be printed in that order.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.made.markdown import Block, blocks
from docs.made.pages import DOCS, ROOT
from docs.made.shell import OUTPUT, SLOW

WALKTHROUGH = ROOT / DOCS / "how-to/gpu-walkthrough.md"  # of a public trace
PAGES = (ROOT / DOCS / "tutorial.md", ROOT / DOCS / "how-to/what-if.md", WALKTHROUGH)
NEEDED = ("datasets", "predict.py", "train.py")  # what a reader has in the folder where the commands are given
SHELL = "sh"
TERMINAL = {"COLUMNS": "110", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}  # of a reader
ALIKE = 0.6  # of a shown line and the printed one that takes its place


@dataclass(frozen=True)
class Part:
    """Commands of one block, and the block that shows what they print; None: none does."""

    commands: tuple[str, ...]
    shown: Block | None
    is_slow: bool


def parts_of(text: str) -> list[Part]:
    """The page's commands, in order."""
    result = blocks(text)
    return [
        Part(commands(block), after if after is not None and after.language == OUTPUT else None,
             block.note.startswith(SLOW))
        for block, after in zip(result, [*result[1:], None], strict=True) if block.language == SHELL
    ]  # fmt: skip


def commands(block: Block) -> tuple[str, ...]:
    """One command per line; a backslash at its end goes on in the next."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    return tuple(line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def readme_commands() -> list[str]:
    """Those of README's first screens on the public trace, up to the last whose output it shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Three commands on a GPU trace")[2]
    return re.findall(r"^    (gnnperf .*)$", text, re.MULTILINE)[:4]


def words_of(command: str) -> list[str]:
    """As this interpreter runs it, with its own gnnperf."""
    words = shlex.split(command)
    program = {"gnnperf": [sys.executable, "-m", "gnnperf"], "python": [sys.executable]}
    return [*program.get(words[0], [words[0]]), *words[1:]]


def in_a_process(command: str, folder: Path) -> str:
    """What a command prints to standard output."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | TERMINAL
    done = subprocess.run(words_of(command), cwd=folder, env=environment, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def run(part: Part, folder: Path, call: Callable[[str, Path], str] = in_a_process) -> str:
    """What its commands print to standard output; `call` runs one of them in the folder."""
    return "".join(call(command, folder) for command in part.commands)


def missing(shown: Iterable[str], printed: str) -> list[str]:
    """Lines that were not printed, or not in this order; spaces do not count."""
    rest, result = iter([_plain(line) for line in printed.splitlines()]), []
    for line in filter(None, map(_plain, shown)):
        before = list(rest)
        if line in before:
            rest = iter(before[before.index(line) + 1 :])
        else:
            rest = iter(before)
            result.append(line)
    return result


def renewed(shown: Sequence[str], printed: str) -> list[str]:
    """Each shown line as it is printed now: of the lines behind the last one, that most like it, numbers aside.

    A line that none is like stays as it is, and is then missing.
    """
    rest, result = [line.rstrip() for line in printed.splitlines()], []
    for old in shown:
        alike = [_similarity(line, old) for line in rest]
        best = max(alike, default=0.0)
        if not old.strip() or best < ALIKE:
            result.append(old)
            continue
        place = alike.index(best)
        result.append(rest[place])
        rest = rest[place + 1 :]
    return result


def prepare(folder: Path) -> None:
    """Give the folder what the commands need of the repository."""
    for name in NEEDED:
        (folder / name).symlink_to(ROOT / name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, compare, and write if requested to; returns the number of lines that are not as printed."""
    parser = argparse.ArgumentParser(prog="python -m docs.made.tutorial", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--slow", action="store_true", help="also the slow ones")
    parser.add_argument("--write", action="store_true", help="bring the pages up to date")
    requested = parser.parse_args(arguments)
    return sum(_compared(page, requested.slow, requested.write) for page in PAGES)


def _compared(page: Path, with_slow: bool, is_written: bool) -> int:
    text = page.read_text(encoding="utf-8")
    lines, wrong = text.splitlines(), 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for part in parts_of(text):
            if part.is_slow and not with_slow:
                continue
            printed = run(part, Path(folder))
            shown = part.shown.lines if part.shown else ()
            if is_written and part.shown:
                lines[part.shown.first : part.shown.first + len(shown)] = renewed(shown, printed)
            for line in missing(() if is_written else shown, printed):
                print(f"{part.commands[-1]}\n  does not print: {line}")
                wrong += 1
            print(f"ran {len(part.commands)}: {part.commands[-1]}", flush=True)
    if is_written:
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return wrong


def _plain(line: str) -> str:
    return " ".join(line.split())


def _similarity(line: str, other: str) -> float:
    """0 to 1; figures count as one letter, so that another figure is no other line."""
    masked, masked_other = (re.sub(r"[\d.,]+", "0", _plain(each)) for each in (line, other))
    return difflib.SequenceMatcher(None, masked, masked_other, autojunk=False).ratio()


if __name__ == "__main__":
    sys.exit(min(main(), 1))
