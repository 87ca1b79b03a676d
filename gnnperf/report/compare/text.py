"""A comparison on the terminal and as JSON."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gnnperf.core import require
from gnnperf.report.compare.changes import Change, Comparison, leading
from gnnperf.report.compare.side import Side
from gnnperf.report.text import time_text
from gnnperf.trace import run_name

# Thresholds for CI: how long step B may be.


@dataclass(frozen=True)
class Limits:
    """What step B may not exceed.

    Attributes:
        max_step_ms: the longest step; None: any.
        max_regression: how much longer than step A it may be, in percent; None: any.
    """

    max_step_ms: float | None = None
    max_regression: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no limit: NaN would let everything pass."""
        for name, value in (("--max-step-ms", self.max_step_ms), ("--max-regression", self.max_regression)):
            require(value is None or (math.isfinite(value) and value >= 0), name, value, "a number, 0 or more")

    def exceeded(self, found: Comparison) -> tuple[str, ...]:
        """A sentence for each limit that step B is beyond."""
        return self.sentences("step B", found.b.step_time_us, "step A", found.a.step_time_us)

    def sentences(self, step: str, step_us: float, before: str, before_us: float | None) -> tuple[str, ...]:
        """A sentence for each limit that a step is beyond.

        Args:
            step: what it is called.
            step_us: its time.
            before: what the step is called that it is compared with.
            before_us: its time; None: it is compared with none.
        """
        said = []
        if self.max_step_ms is not None and step_us > 1000.0 * self.max_step_ms:
            said.append(f"{step} takes {time_text(step_us)}, more than {self.max_step_ms:g} ms (--max-step-ms)")
        if self.max_regression is None or before_us is None:
            return tuple(said)
        longer_us = step_us - before_us
        if longer_us > self.max_regression / 100.0 * before_us:
            share = f"{100.0 * longer_us / before_us:.1f} %" if before_us > 0 else time_text(longer_us)
            said.append(
                f"{step} is {share} longer than {before}, more than {self.max_regression:g} % (--max-regression)"
            )
        return tuple(said)


FORMAT, FORMAT_VERSION = "gnnperf.comparison", 1
BAR_WIDTH = 24  # characters
NUM_PARTS = 12  # per table; the JSON has all
LONGER, SHORTER = "red", "green"


def headline(found: Comparison) -> str:
    """Both step times and the change in one line."""
    share = f" ({100.0 * found.change_share:+.1f} %)" if found.a.step_time_us > 0 else ""
    return (
        f"step {found.b.step_time_kind}: {_step(found.a)} -> {_step(found.b)}, "
        f"change {signed(found.change_us)}{share}"
    )  # fmt: skip


def sides(found: Comparison) -> tuple[str, ...]:
    """What A and B are."""
    return tuple(
        f"{letter}: {run_name(Path(side.where))} ({', '.join(filter(None, (side.run, side.who, side.hardware)))})"
        for letter, side in (("A", found.a), ("B", found.b))
    )


def warnings(found: Comparison) -> tuple[str, ...]:
    """What to know before reading the change."""
    said = [
        f"Step {letter} leaves out work that is not covered: it is a lower bound."
        for letter, side in (("A", found.a), ("B", found.b))
        if side.is_lower_bound
    ]
    if found.a.hardware != found.b.hardware:
        said.append(f"A is on {found.a.hardware or 'unknown'}, B on {found.b.hardware or 'unknown'} hardware.")
    if found.a.evidence and found.b.evidence and found.a.evidence != found.b.evidence:
        used = f"evidence={found.a.evidence} in A and evidence={found.b.evidence} in B"
        said.append(f"The predictions start from different evidence: {used}. Predict both with the same.")
    return tuple(said)


def rendered(found: Comparison, limits: Limits) -> RenderableType:
    """Everything that is printed. Names come from traces, so nothing is read as markup."""
    return Group(
        *(Text(line, style="dim") for line in sides(found)),
        Text(headline(found), style="bold"),
        *(Text(f"warning: {line}", style="yellow") for line in warnings(found)),
        *(_table(by, changes, found) for by, changes in found.changes.items()),
        *(Text(f"exceeded: {line}", style="bold red") for line in limits.exceeded(found)),
    )


def comparison_document(found: Comparison, limits: Limits) -> dict[str, Any]:
    """Every key of the JSON; units are in the names, shares are fractions."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "a": _side(found.a),
        "b": _side(found.b),
        "step_time_kind": str(found.b.step_time_kind),
        "change_us": found.change_us,
        "change_share": found.change_share,
        **{f"by_{by.replace(' ', '_')}": [_change(one) for one in parts] for by, parts in found.changes.items()},
        "max_step_ms": limits.max_step_ms,
        "max_regression_percent": limits.max_regression,
        "exceeded": list(limits.exceeded(found)),
        "warnings": list(warnings(found)),
    }


def signed(change_us: float) -> str:
    """A change of time with its sign."""
    return f"{'+' if change_us >= 0 else ''}{time_text(change_us)}"


def _step(side: Side) -> str:
    return f"{'at least ' if side.is_lower_bound else ''}{time_text(side.step_time_us)}"


def _table(by: str, changes: tuple[Change, ...], found: Comparison) -> Table:
    table = Table(title=f"by {by}: time on the critical path", title_justify="left", box=None, pad_edge=False)
    table.add_column(by, overflow="fold")
    for name in ("A", "B", "change", "all ranks A", "all ranks B"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("from A to B", width=BAR_WIDTH, no_wrap=True)
    parts = leading(changes, NUM_PARTS)
    for part, bar in zip(parts, bars([part.change_us for part in parts], found.a.step_time_us), strict=True):
        times = (time_text(part.a_us), time_text(part.b_us), signed(part.change_us))
        totals = (time_text(part.a_total_us), time_text(part.b_total_us)) if part.a_nodes or part.b_nodes else ("", "")
        color = LONGER if part.change_us > 0 else SHORTER
        table.add_row(*(Text(cell) for cell in (part.name, *times, *totals)), Text(bar, style=color))
    return table


def bars(changes_us: list[float], begins_us: float) -> list[str]:
    """One bar per change, each beginning where the one before it ended; the first at step A."""
    ends_us = [begins_us]
    for change_us in changes_us:
        ends_us.append(ends_us[-1] + change_us)
    low_us, span_us = min(ends_us), max(ends_us) - min(ends_us)
    places = [round(BAR_WIDTH * (us - low_us) / span_us) if span_us > 0 else 0 for us in ends_us]
    return [
        " " * min(*pair, BAR_WIDTH - 1) + ("█" * (max(pair) - min(pair)) or "▏") for pair in itertools.pairwise(places)
    ]


def _side(side: Side) -> dict[str, Any]:
    return {
        "where": run_name(Path(side.where)),
        "run": side.run,
        "who": side.who,
        "hardware": side.hardware or None,
        "step_time_us": side.step_time_us,
        "step_time_is_lower_bound": side.is_lower_bound,
    }


def _change(part: Change) -> dict[str, Any]:
    return {
        "name": part.name,
        "a_critical_us": part.a_us,
        "b_critical_us": part.b_us,
        "change_us": part.change_us,
        "a_all_ranks_us": part.a_total_us,
        "b_all_ranks_us": part.b_total_us,
        "a_num_nodes": part.a_nodes,
        "b_num_nodes": part.b_nodes,
    }
