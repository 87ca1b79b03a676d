from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from research.benchmarks._edit_table import AGAIN, NOTHING, Judged, each, spread, summary

TOLD = ("gnn", "trivial")
LOUD = Judged("link", "a", "b", (100.0, 110.0), (200.0, 230.0), {"gnn": 99.0, "trivial": 165.0})
QUIET = Judged("link", "c", "d", (100.0, 110.0), (120.0, 105.0), {"gnn": -900.0, "trivial": 0.0})


def text(table: Table) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_change_counts_above_the_spread_of_recordings() -> None:
    assert (LOUD.measured_us, LOUD.noise_us, LOUD.is_loud) == (110.0, 40.0, True)
    assert (QUIET.measured_us, QUIET.noise_us, QUIET.is_loud) == (7.5, 25.0, False)
    once = Judged("link", "a", "b", (100.0,), (200.0,), {})
    assert not once.is_loud  # nothing knows its noise
    assert np.isnan(once.again_error())


def test_errors_by_hand() -> None:
    assert LOUD.error("gnn") == pytest.approx(0.1) and LOUD.signed("gnn") == pytest.approx(-0.1)
    assert LOUD.error("trivial") == pytest.approx(0.5) and LOUD.error(NOTHING) == 1.0
    assert np.isnan(LOUD.error("somebody"))
    # 100 against 120, 130 against 90, 90 against 130, 120 against 100
    assert LOUD.error(AGAIN) == pytest.approx(np.mean([20 / 120, 40 / 90, 40 / 130, 20 / 100]))


def test_tables() -> None:
    result, answers = [LOUD, QUIET], (*TOLD, NOTHING, AGAIN)
    by_kind = [line.split("│")[1:] for line in text(summary(result, answers)).splitlines() if "│" in line]
    assert [record.strip() for record in by_kind[0]][:8] == ["link", "2", "1", "1/1", "10.0", "50.0", "100.0", "28.0"]
    assert by_kind[-1][0].strip() == "all"
    over_all = text(spread(result, answers))
    assert "-10.0" in over_all and "-100.0" in over_all and "50.0" in over_all
    pairs = text(each(result, TOLD))
    assert "(+8)" in pairs and "+110" in pairs and "-900" in pairs
