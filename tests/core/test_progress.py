"""Bars: after two seconds, with rate and what is left; nothing where no one looks."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Task
from synthetic import prepared

from gnnperf.cli import main
from gnnperf.core.progress import Advance, Bars, bars_on_terminal, duration, each, task, watched_by, words
from tests.test_predict_script import trace  # noqa: F401  # a fixture


class Clock:
    """Tells what it is set to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(name="bars")
def _bars() -> Iterator[tuple[Bars, Clock, io.StringIO]]:
    clock, out = Clock(), io.StringIO()
    bars = Bars(lambda: Console(file=out, force_terminal=True, width=120), clock)
    with watched_by(bars):
        yield bars, clock, out


def _drawn(bars: Bars) -> list[Task]:
    return [] if bars.shown is None else bars.shown.tasks


def test_words_say_how_far_how_fast_and_how_long() -> None:
    assert words(5e7, 2e8, 2.5, "B") == "50 of 200 MB, 20 MB/s, 7.5 s left"
    assert words(0.0, 8.0, 0.0, "ranks") == "0 of 8 ranks, 0 ranks/s"


@pytest.mark.parametrize(
    ("seconds", "sentences"),
    [(0.25, "0.25 s"), (7.5, "7.5 s"), (59.0, "59 s"), (200.0, "3 min 20 s"), (3 * 3600 + 300, "3 h 5 min")],
)
def test_durations_have_at_most_two_units(seconds: float, sentences: str) -> None:
    assert duration(seconds) == sentences


def test_short_work_shows_nothing(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, clock, out = bars
    with task("reading", 10.0, "B") as advance:
        clock.now_s = 1.9
        advance(5.0)
        shown.look()
    shown.look()
    assert out.getvalue() == ""


def test_long_work_shows_a_bar_and_takes_it_away(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, clock, out = bars
    with task("reading [red]x", 1000.0, "B") as advance:
        clock.now_s = 2.0
        advance(500.0)
        shown.look()
        assert [(bar.completed, bar.fields["words"]) for bar in _drawn(shown)] == [
            (500.0, "0.5 of 1 kB, 250 B/s, 2 s left")
        ]
        for item in each([1, 2], "inside", "items"):
            clock.now_s += 3.0 * item
            shown.look()
            assert len(_drawn(shown)) == 2
    assert _drawn(shown) == []
    assert "reading [red]x" in out.getvalue()  # names are no markup
    assert "inside" in out.getvalue()


def test_work_that_has_not_advanced_yet_shows_a_bar(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, clock, out = bars
    with task("reading", 8.0, "files"):
        clock.now_s = 4.0
        shown.look()
    assert "0 of 8 files" in out.getvalue()


def test_an_interrupt_takes_the_bar_away(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, clock, _ = bars
    with pytest.raises(KeyboardInterrupt), task("reading", 10.0, "B") as advance:
        clock.now_s = 5.0
        advance(1.0)
        shown.look()
        display = shown.shown
        raise KeyboardInterrupt
    assert display is not None and not display.live.is_started
    assert shown.shown is None and shown.under_way == []


def test_threads_share_a_task(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, _, _ = bars
    with task("fetching", 4000.0, "B") as advance:
        workers = [threading.Thread(target=lambda: [advance(1.0) for _ in range(1000)]) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert shown.under_way[0].done == 4000.0


def test_into_a_pipe_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with bars_on_terminal(), task("reading", 10.0, "B") as advance:
        advance(10.0)
    assert capsys.readouterr() == ("", "")


PROGRAM = """
import sys, time
import gnnperf.core.progress as progress
assert "rich" not in sys.modules
progress.PATIENCE_S, progress.LOOK_S = 0.2, 0.02
with progress.bars_on_terminal(sys.argv[1] == "quiet"):
    with progress.task("reading", 10.0, "B") as advance:
        for _ in range(10):
            time.sleep(0.05)
            advance(1.0)
            print("a line", flush=True)
            if sys.argv[1] == "interrupted":
                raise KeyboardInterrupt
"""


def _on_a_terminal(word: str) -> tuple[str, str]:
    """What stdout, a pipe, and stderr, a terminal, got."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM, word], stdout=subprocess.PIPE, stderr=theirs) as program:
        os.close(theirs)
        drawn = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # how a terminal says that no one writes any more
                break
            if not piece:
                break
            drawn += piece
        assert program.stdout is not None
        sentences = program.stdout.read()
    os.close(ours)
    return sentences.decode(), drawn.decode()


def test_a_terminal_sees_the_bar_and_a_pipe_the_output() -> None:
    sentences, drawn = _on_a_terminal("shown")
    assert sentences == "a line\n" * 10
    assert "reading" in drawn and "of 10 B" in drawn and "a line" not in drawn
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")  # the cursor is back


def test_quiet_is_quiet_on_a_terminal_too() -> None:
    assert _on_a_terminal("quiet") == ("a line\n" * 10, "")


# --- what takes long says how far it is -------------------------------------------------------------------------------


class Seen(Bars):
    """Keeps what was given: work -> (how much there was, how much was done)."""

    def __init__(self) -> None:
        super().__init__(Console)
        self.tasks: dict[str, tuple[float, float]] = {}

    @contextmanager
    def task(self, what: str, total: float, unit: str) -> Iterator[Advance]:
        name = f"{what} ({unit})"
        self.tasks[name] = (total, 0.0)

        def advance(amount: float) -> None:
            self.tasks[name] = (total, self.tasks[name][1] + amount)

        yield advance


@pytest.fixture(name="seen")
def _seen() -> Iterator[Seen]:
    seen = Seen()
    with watched_by(seen):
        yield seen


def test_importing_reports_every_part_to_its_end(seen: Seen, trace: Path, tmp_path: Path) -> None:  # noqa: F811
    assert main(["import", str(trace), "--out", str(tmp_path / "out")]) == 0
    assert set(seen.tasks) == {
        "reading the trace (files)", "comparing clocks (ranks)", "finding host segments (ranks)",
        "building the graph (ranks)", "writing (folders)",
    }  # fmt: skip
    assert {name for name, (total, done) in seen.tasks.items() if total != done} == set()


def test_loading_a_data_set_reports_what_it_reads_and_builds(seen: Seen, tmp_path: Path) -> None:
    prepared(tmp_path / "cache")
    parts = {f"{what}, {part} ({unit})" for part in ("train", "val", "test")
             for what, unit in (("reading recordings", "recordings"), ("building features", "runs"))}  # fmt: skip
    assert {name for name, (total, done) in seen.tasks.items() if total == done > 0} == {
        *parts, "building features, intervals (runs)",
    }  # fmt: skip
