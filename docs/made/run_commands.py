"""Run every command of README, the pages and the help texts, on small inputs: each must end as its page states.

python -m docs.made.run_commands              all, in two processes
python -m docs.made.run_commands train.md     those of some pages
python -m docs.made.run_commands --write      also bring the outputs of pages up to date

The commands of a page run in order, in a folder of its own. docs/made/reader_files.py has what they read and what
stands for words like TRACE. Trainings get one epoch, searches of settings two trials, calibrations the shortest time,
recordings two ranks (docs/made/calls.py). docs/made/command_classes.py lists what tests or CI run, and what is not run.
No command may change what conf/ ships.

Output that a page shows behind commands must be printed by them, line by line. Where a command runs as it is shown, on
files of the repository or of its page, figures count; where files of the reader or settings are replaced, they do not.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from docs.made.calls import called, shortened
from docs.made.command_classes import Shown, Where, class_of, every_command
from docs.made.pages import ROOT
from docs.made.reader_files import prepare, provide, reads_stand_ins, replaced, share
from docs.made.tutorial import missing, renewed

NUM_PROCESSES, LAST_LINES, WRITE = 2, 8, "--write"
# With sign and unit; lists of them, which may be longer.
FIGURES = re.compile(r"[+-]?\d[\d.,]*(e[+-]\d+)?( [mu]?s\b| [KMG]iB\b)?(, \d[\d.,]*)*")
# Exit codes that a page states, next to 0.
STATED = ((r"--max-step-ms|--max-regression", 4), (r"max_uncovered_share", 3))
MIRROR, PUBLIC = "GNNPERF_DATA_MIRROR", re.compile(r"gnnperf data fetch|python -m research\.fitting\.cdna")


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its seconds, and what is wrong; "": nothing."""

    command: Shown
    seconds: float
    wrong: str


def main(arguments: Sequence[str]) -> int:
    """Run, print what fails and the counts; 1 where any fails or is in no class."""
    pages, is_written = [word for word in arguments if word != WRITE], WRITE in arguments
    classes = [(command, *class_of(command)) for command in every_command()]
    if not os.environ.get(MIRROR):
        why = f"reads public data, and {MIRROR} is not set"
        classes = [(command, Where.nowhere, why) if PUBLIC.match(str(command)) else (command, where, reason)
                   for command, where, reason in classes]  # fmt: skip
    here = [command for command, where, _ in classes if where is Where.here and _is_among(command, pages)]
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder)
        os.environ["HOME"] = str(shared / "home")
        share(shared)
        shipped = _shipped()
        outcomes = _all(here, shared, is_written)
    changed = sorted(name for name, _ in shipped ^ _shipped())
    failed = [outcome for outcome in outcomes if outcome.wrong]
    unknown = [command for command, where, _ in classes if where is Where.unknown]
    for command in unknown:
        print(f"in no class of docs/made/command_classes.py: {command.page}: {command}")
    if changed:
        print(f"FAILED: commands changed {', '.join(dict.fromkeys(changed))}")
    print(f"\nrun: {len(outcomes)}, of which {len(failed)} failed")
    for kind in (Where.in_tests, Where.nowhere):
        reasons = Counter(why for _, where, why in classes if where is kind)
        print(
            f"{kind}: {reasons.total()}", *(f"  {number:3d}  {why}" for why, number in reasons.most_common()), sep="\n"
        )
    return int(bool(failed or unknown or changed))


def _shipped() -> set[tuple[str, bytes]]:
    return {(str(path.relative_to(ROOT)), path.read_bytes()) for path in sorted((ROOT / "conf").rglob("*.yaml"))}


def _is_among(command: Shown, pages: Sequence[str]) -> bool:
    return not pages or any(command.page.endswith(page) for page in pages)


def _all(commands: Sequence[Shown], shared: Path, is_written: bool) -> list[Outcome]:
    """Page by page, those with most commands first."""
    by_page: dict[str, list[Shown]] = {}
    for command in commands:
        by_page.setdefault(command.page, []).append(command)
    order = sorted(by_page.values(), key=len, reverse=True)
    with ProcessPoolExecutor(NUM_PROCESSES, mp_context=get_context("spawn")) as pool:
        results = pool.map(partial(_page, shared=shared, is_written=is_written), order)
        return [outcome for outcomes in results for outcome in outcomes]


def _page(commands: Sequence[Shown], shared: Path, is_written: bool) -> list[Outcome]:
    name = commands[0].page
    folder = shared / "pages" / re.sub(r"\W", "_", name)
    folder.parent.mkdir(exist_ok=True)
    prepare(folder, shared)
    text = (ROOT / name).read_text(encoding="utf-8") if name.endswith(".md") else name
    outcomes, before = [], ""
    for command in commands:
        outcome, printed = _run(command, folder, shared, text)
        if command.output and not outcome.wrong:
            if is_written and _runs_as_shown(command):
                command = _written(command, before + printed)
            outcome = replace(outcome, wrong=not_printed(command, before + printed))
        before = before + printed if command.output == () else ""
        outcomes.append(outcome)
        print(f"{outcome.seconds:6.1f} s  {name}: {command}\n{outcome.wrong}", end="", flush=True)
    return outcomes


def not_printed(command: Shown, printed: str) -> str:
    """The lines of the page that its commands do not print."""
    shown = "\n".join(command.output or ())
    if not _runs_as_shown(command):
        shown, printed = (FIGURES.sub("0", each) for each in (shown, printed))
    lines = missing(shown.splitlines(), printed)
    return "".join(f"  FAILED: does not print: {line}\n" for line in lines)


def _runs_as_shown(command: Shown) -> bool:
    words = replaced(command.words)
    return words == list(command.words) == shortened(words) and not reads_stand_ins(words)


def _written(command: Shown, printed: str) -> Shown:
    """The command with its output of now, which its page then shows."""
    page, shown = ROOT / command.page, command.output or ()
    now = tuple(renewed(shown, printed))
    text = page.read_text(encoding="utf-8").replace("\n".join(shown), "\n".join(now))
    page.write_text(text, encoding="utf-8")
    return replace(command, output=now)


def _run(command: Shown, folder: Path, shared: Path, text: str) -> tuple[Outcome, str]:
    """How it ended, and what it prints."""
    words, start_s = replaced(command.words), time.monotonic()
    try:
        provide(words, folder, shared, text)
        code, out, err = called(words, folder)
    except Exception as error:  # of one command: the others run
        code, out, err = 1, "", repr(error)
    allowed = {0} | {code for form, code in STATED if re.search(form, str(command))}
    if code in allowed and "Traceback (most recent call last)" not in out + err:
        return Outcome(command, time.monotonic() - start_s, ""), out
    last = "\n".join(f"    {line}" for line in (out + err).splitlines()[-LAST_LINES:])
    wrong = f"  FAILED with exit code {code}\n  {' '.join(words)}\n{last}\n"
    return Outcome(command, time.monotonic() - start_s, wrong), out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
