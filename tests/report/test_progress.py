"""Bars: after two seconds, with rate and what is left; nothing where nobody looks."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from gnnperf.graph import build_graph
from gnnperf.progress import each, task, watched_by
from gnnperf.report.progress import Bars, bars_on_terminal, words
from gnnperf.trace import read_run
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
    bars = Bars(Console(file=out, force_terminal=True, width=120), clock)
    with watched_by(bars):
        yield bars, clock, out


def test_words_say_how_far_how_fast_and_how_long() -> None:
    assert words(5e7, 2e8, 2.5, "B") == "50 of 200 MB, 20 MB/s, 7.5 s left"
    assert words(0.0, 8.0, 0.0, "ranks") == "0 of 8 ranks, 0 ranks/s"


def test_short_work_shows_nothing(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    _, clock, out = bars
    with task("reading", 10.0, "B") as advance:
        clock.now_s = 1.9
        advance(5.0)
    assert out.getvalue() == ""


def test_long_work_shows_a_bar_and_takes_it_away(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, clock, out = bars
    with task("reading [red]x", 1000.0, "B") as advance:
        clock.now_s = 2.0
        advance(500.0)
        assert [bar.completed for bar in shown.shown.tasks] == [500.0]
        assert shown.shown.tasks[0].fields["words"] == "0.5 of 1 kB, 250 B/s, 2 s left"
        shown.shown.refresh()
        for item in each([1, 2], "inside", "items"):
            clock.now_s += 3.0 * item
    assert shown.shown.tasks == []
    assert "reading [red]x" in out.getvalue()  # names are no markup


def test_an_interrupt_takes_the_bar_away(bars: tuple[Bars, Clock, io.StringIO]) -> None:
    shown, clock, _ = bars
    with pytest.raises(KeyboardInterrupt), task("reading", 10.0, "B") as advance:
        clock.now_s = 5.0
        advance(1.0)
        raise KeyboardInterrupt
    assert shown.shown.tasks == []
    assert not shown.shown.live.is_started


def test_into_a_pipe_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with bars_on_terminal(), task("reading", 10.0, "B") as advance:
        advance(10.0)
    assert capsys.readouterr() == ("", "")


def test_reading_and_building_say_how_far_they_are(trace) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    class Seen:
        def __init__(self) -> None:
            self.tasks: list[str] = []

        def task(self, what: str, total: float, unit: str):  # type: ignore[no-untyped-def]
            self.tasks.append(f"{what} ({unit})")
            return Bars(Console(file=io.StringIO())).task(what, total, unit)

    seen = Seen()
    with watched_by(seen):
        build_graph(read_run(trace))
    assert "building the graph (ranks)" in seen.tasks
