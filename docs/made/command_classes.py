"""Every different command of pages and help texts, and where it runs: docs.made.run_commands, a test or CI, nowhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from docs.made.commands import help_texts
from docs.made.pages import ROOT, written_pages
from docs.made.shell import commands_of, commands_with_output, commands_within
from docs.made.tutorial import PAGES as SHOWN
from docs.made.tutorial import parts_of, readme_commands

SCRIPTS = ("predict.py", "train.py")


class Where(StrEnum):
    """Where a command runs."""

    here = "run"
    in_tests = "run by a test or by CI"
    nowhere = "not run"
    unknown = "in no class"


@dataclass(frozen=True)
class Shown:
    """A command: the page or help text that shows it first, or with output; its words, and that output (shell.py)."""

    page: str
    words: tuple[str, ...]
    output: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return " ".join(self.words)


# The first pattern that a command matches states where it runs, and why.
CLASSES = (
    (r"make (test|format)$", Where.in_tests, ".ci/run: make test, whose linters check the format"),
    (r"make demo$", Where.in_tests, ".ci/run"),
    (r"make environment$", Where.in_tests, ".ci/run: make test needs it"),
    (r"make docs$", Where.in_tests, "tests/docs/test_site.py builds the site"),
    (r"python -m docs\.made\.(features|leaderboard)\b", Where.in_tests, "tests/docs/test_made.py"),
    (r"python -m docs\.made\.screenshots", Where.in_tests, "tests/docs/test_readme.py takes them, where Chromium is"),
    (r"python -m docs\.made\.run_commands", Where.in_tests, ".ci/run"),
    (r"python -m docs\.made\.tutorial", Where.in_tests, "tests/docs/test_tutorial.py"),
    (r"python -m pytest ", Where.in_tests, ".ci/run: make test"),
    (r"python -m research\.benchmarks\.fuzz$", Where.in_tests, ".ci/run"),
    (r"python -m research\.benchmarks\b", Where.nowhere, "a benchmark of minutes to hours, measured by hand"),
    (r"gnnperf improvement outputs/learned\S* .*--split size ",
     Where.nowhere, "reads the records of such a benchmark"),
    (r"gnnperf record --recipe (cpu-gloo|cpu-again|gpu)\b", Where.nowhere, "records a data set for hours, or on GPUs"),
    (r"python -m research\.fitting\.(collectives conf/|recorded$)", Where.nowhere, "fits constants for minutes"),
    (r"gnnperf calibrate --out \S+$", Where.nowhere, "measures the machine for minutes, with nothing else on it"),
    (r"gnnperf data fetch --kind \*", Where.nowhere, "copies all public files, 2 GB"),
    (r"srun ", Where.nowhere, "needs a SLURM cluster"),
    (r"torchrun .* nsys ", Where.nowhere, "needs Nsight Systems"),
    (r"gnnperf data build .*--scheduler", Where.nowhere, "needs a Dask scheduler"),
    (r"python train\.py logger=wandb (logger\.project=gnnperf|resume=auto)$", Where.nowhere, "needs a wandb account"),
    (r"python -m http\.server ", Where.nowhere, "serves until it is interrupted"),
    (r"(gnnperf|torchrun|python (-m research\.fitting\.(collectives|cdna)|(predict|train)\.py|examples/))",
     Where.here, ""),
)  # fmt: skip


def every_command() -> list[Shown]:
    """Pages first; a command that several show is that of the first one. On a page, blocks come before its prose."""
    result: dict[tuple[str, ...], Shown] = {}
    for page, text in _texts():
        for words, output in [*commands_with_output(text), *((words, None) for words in commands_within(text))]:
            parts = list(_parts(words))
            for part in parts:
                shown = output if output is None or part is parts[-1] else ()
                if shown is not None and result.get(part, Shown(page, part)).output is None:
                    result.pop(part, None)  # it runs where its output can be compared, in the order of that page
                result.setdefault(part, Shown(page, part, shown))
    return list(result.values())


def class_of(command: Shown) -> tuple[Where, str]:
    """Where it runs, and why not here."""
    if command.words in _in_tests():
        return Where.in_tests, "tests/docs/test_tutorial.py, test_readme.py: with their output"
    return next(((where, why) for form, where, why in CLASSES if re.match(form, str(command))), (Where.unknown, ""))


def _texts() -> Iterator[tuple[str, str]]:
    for page in written_pages():
        if page != "CHANGELOG.md":
            yield page, (ROOT / page).read_text(encoding="utf-8")
    helps = {f"{name} --help": text.partition("\nexamples:\n")[2] for name, text in help_texts().items()}
    for name in SCRIPTS:
        helps[f"{name} --help"] = ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8"))) or ""
    for name, text in helps.items():
        yield name, "```\n" + "".join(f"{line.strip()}\n" for line in text.splitlines()) + "```\n"


def _parts(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Commands that && joins; `python -m gnnperf` is gnnperf."""
    part: list[str] = []
    for word in [*words, "&&"]:
        if word != "&&":
            part.append(word)
        elif part:
            yield ("gnnperf", *part[3:]) if part[:3] == ["python", "-m", "gnnperf"] else tuple(part)
            part = []


@cache
def _in_tests() -> set[tuple[str, ...]]:
    """Commands whose output tests compare."""
    every = [part for path in SHOWN for part in parts_of(path.read_text(encoding="utf-8"))]
    lines = [command for part in every if not part.is_slow and part.shown for command in part.commands]
    return set(map(tuple, commands_of("\n".join(["```sh", *lines, *readme_commands(), "```"]))))
