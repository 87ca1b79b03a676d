"""Bars: after two seconds; nothing where no one looks. A function for many items, here and in other processes."""

import io
import math
import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Task
from synthetic import prepared

from gnnperf.core import InputError, in_copies, in_copy, in_turn, progress, workers
from gnnperf.core.progress import Advance, Bars, bars_on_terminal, each, task, watched_by
from gnnperf.hardware import load_device
from tests.command import Command


@pytest.fixture(name="bars")
def _bars(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bars, io.StringIO]]:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    bars = Bars(lambda: Console(file=out, force_terminal=True, width=120))
    with watched_by(bars):
        yield bars, out


def _drawn(bars: Bars) -> list[Task]:
    return [] if bars.shown is None else bars.shown.tasks


def _wait_for(bars: Bars, count: int) -> None:
    give_up = time.monotonic() + 10.0
    while len(_drawn(bars)) < count and time.monotonic() < give_up:
        time.sleep(0.01)


def test_short_work_shows_nothing() -> None:
    bars = Bars(lambda: pytest.fail("nothing is drawn"))
    with watched_by(bars), task("reading", 10.0, "B") as advance:
        advance(5.0)
    assert bars.shown is None


def test_long_work_shows_a_bar_and_takes_it_away(bars: tuple[Bars, io.StringIO]) -> None:
    shown, out = bars
    with task("reading [red]x", 1000.0, "B") as advance:
        advance(250.0)
        _wait_for(shown, 1)
        advance(250.0)
        assert [(bar.completed, bar.total) for bar in _drawn(shown)] == [(500.0, 1000.0)]
        for _ in each([1], "inside", "items"):
            _wait_for(shown, 2)
            assert len(_drawn(shown)) == 2
        assert shown.shown is not None
        shown.shown.refresh()
    assert _drawn(shown) == []
    assert "reading [red]x" in out.getvalue()  # names are no markup
    assert "500 of 1,000 B" in out.getvalue()


def test_an_interrupt_takes_the_bar_away(bars: tuple[Bars, io.StringIO]) -> None:
    shown, _ = bars
    with pytest.raises(KeyboardInterrupt), task("reading", 10.0, "B"):
        _wait_for(shown, 1)
        display = shown.shown
        raise KeyboardInterrupt
    assert display is not None and not display.live.is_started
    assert shown.shown is None


def test_into_a_pipe_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with bars_on_terminal(), task("reading", 10.0, "B") as advance:
        advance(10.0)
    assert capsys.readouterr() == ("", "")


PROGRAM = """
import sys, time
import gnnperf.core.progress as progress
assert "rich" not in sys.modules
progress.PATIENCE_S = 0.2
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
    given = os.environ | {"TERM": "xterm"}  # whatever the terminal of the tests can draw
    with subprocess.Popen([sys.executable, "-c", PROGRAM, word], stdout=subprocess.PIPE, stderr=theirs,
                          env=given) as program:  # fmt: skip
        os.close(theirs)
        drawn = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # how a terminal states that no one writes any more
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


def test_importing_reports_every_part_to_its_end(
    seen: Seen, small_trace: Path, tmp_path: Path, command: Command
) -> None:
    command.shown("import", small_trace, "--out", tmp_path / "out")
    assert set(seen.tasks) == {
        "reading the trace (files)", "comparing clocks (ranks)", "building the graph (ranks)", "writing (folders)",
    }  # fmt: skip
    assert {name for name, (total, done) in seen.tasks.items() if total != done} == set()


def test_loading_a_data_set_reports_what_it_reads_and_builds(seen: Seen, tmp_path: Path) -> None:
    prepared(tmp_path / "cache")
    parts = {f"{what}, {part} ({unit})" for part in ("train", "val", "test")
             for what, unit in (("reading recordings", "runs"), ("building features", "runs"))}  # fmt: skip
    assert {name for name, (total, done) in seen.tasks.items() if total == done > 0} == {
        *parts, "building features, intervals (runs)",
    }  # fmt: skip


def test_results_are_in_the_order_of_items() -> None:
    assert in_turn(math.sqrt, [9, 4, 1], "roots") == [3.0, 2.0, 1.0]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_copy_computes_with_the_memory_of_this_process_and_ends_with_its_block() -> None:
    held = [2, 3]  # not sent
    with in_copy(lambda: (os.getpid(), sum(held))) as result:
        copy, total = result()
    assert copy != os.getpid() and total == 5
    with in_copy(
        lambda: [np.arange(size, dtype=kind) for size, kind in ((5, "u1"), (10**5, "i8"), (0, "i8"))]
    ) as given:
        arrays = given()
    assert [one.tolist() for one in arrays] == [list(range(5)), list(range(10**5)), []]
    assert all(one.flags.writeable and one.flags.aligned for one in arrays)
    begin = time.monotonic()
    with in_copy(lambda: time.sleep(600)):
        pass
    assert time.monotonic() - begin < 60


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_copy_sends_arrays_of_any_size_and_a_last_one_without_entries() -> None:
    sizes = (1, 0, 100_003, 0)
    with in_copy(lambda: (os.getpid(), [np.arange(size, dtype=np.int8) for size in sizes])) as result:
        worker, received = result()
    assert worker != os.getpid()
    for one, size in zip(received, sizes, strict=True):
        np.testing.assert_array_equal(one, np.arange(size, dtype=np.int8))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_what_a_copy_cannot_compute_is_computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_copy(lambda: load_device("Abacus")) as result, pytest.raises(InputError, match="Abacus"):
        result()
    own = os.getpid()
    with in_copy(lambda: own if os.getpid() == own else os.kill(os.getpid(), signal.SIGKILL)) as killed:
        assert killed() == own
    with in_copy(lambda: bytes(10**7)) as half_sent:  # more than a pipe holds
        time.sleep(0.3)
        multiprocessing.active_children()[0].kill()
        assert len(half_sent()) == 10**7
    with in_copy(lambda: lambda: 5) as unsent:  # a function of no module
        assert unsent()() == 5
    for call in ("fork", "memfd_create"):
        monkeypatch.setattr(os, call, Mock(side_effect=BlockingIOError))
        with in_copy(lambda: 5) as uncopied:
            assert uncopied() == 5
        monkeypatch.undo()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
@pytest.mark.parametrize("cores", [1, 3])
def test_copies_share_the_items_and_keep_their_order(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "copyable_cores", lambda: cores)
    for count in (0, 2, 7):
        results = in_copies(lambda item: (item, os.getpid()), list(range(count)), "numbers")  # a function of no module
        assert [item for item, _ in results] == list(range(count))
        assert len({pid for _, pid in results}) == min(cores, count)
    with pytest.raises(ZeroDivisionError):
        in_copies(lambda item: 1 / item, [1, 0, 1], "reciprocals")
