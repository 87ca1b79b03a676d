"""What takes long says how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from synthetic import prepared

from gnnperf.cli import main
from gnnperf.core.progress import Advance, watched_by
from tests.test_predict_script import trace  # noqa: F401  # a fixture


class Seen:
    """Keeps what was given: work -> (how much there was, how much was done)."""

    def __init__(self) -> None:
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
