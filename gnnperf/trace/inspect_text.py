"""An Inspection as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnperf.trace.inspect import CollectiveSummary, Inspection, RankSummary, tied_share

MAX_ROWS = 16
BOLD = "bold"


def print_inspection(result: Inspection, console: Console) -> None:
    """Ranks, steps, collectives, execution traces, what is missing, warnings."""
    world = "" if result.world_size is None else f", world size {result.world_size}"
    console.print(Text.assemble((result.name, BOLD), f": {len(result.ranks)} rank(s) traced{world}"))
    for section in (
        _ranks(result),
        _device_work(result),
        _steps(result),
        _collectives(result),
        _execution_traces(result),
    ):
        if section is not None:
            console.print(section)
    for title, lines in (("Not in this trace", result.missing), ("Warnings", result.warnings)):
        if lines:
            console.print(Text(title, BOLD))
            for line in lines[:MAX_ROWS]:
                console.print(f"  - {line}", soft_wrap=True)
            if len(lines) > MAX_ROWS:
                console.print(f"  - ... {len(lines) - MAX_ROWS} more")


def _ranks(result: Inspection) -> Table | None:
    headings = ("rank", "known by", "window ms", "cpu ops", "shapes", "threads", "device")
    return _table("Ranks", headings, [_rank_tds(r) for r in result.ranks])


def _rank_tds(rank: RankSummary) -> tuple[str, ...]:
    return (
        str(rank.rank), rank.rank_source, f"{rank.duration_ms:,.1f}", f"{rank.events.get('cpu_op', 0):,}",
        _percent(rank.ops_with_shapes), str(rank.threads),
        ", ".join(sorted({d or "(no name)" for d in rank.devices})) or "-",
    )  # fmt: skip


def _device_work(result: Inspection) -> Table | None:
    headings = ("rank", "launches", "kernels", "copies", "streams", "tied to ops", "by", "before window")
    return _table("Device work", headings, [_device_tds(r) for r in result.ranks if r.streams])


def _device_tds(rank: RankSummary) -> tuple[str, ...]:
    count = rank.events.get
    copies = count("memcpy", 0) + count("memset", 0)
    return (
        str(rank.rank), f"{count('runtime', 0):,}", f"{count('kernel', 0):,}", f"{copies:,}", str(rank.streams),
        _percent(tied_share(rank)), rank.link_method, f"{rank.links.get('before_window', 0):,}",
    )  # fmt: skip


def _table(title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table | None:
    if not rows:
        return None
    table = Table(*headings, title=title, title_justify="left", box=SIMPLE)
    for cells in rows[:MAX_ROWS]:
        table.add_row(*cells)
    if len(rows) > MAX_ROWS:
        table.add_row("...", f"{len(rows) - MAX_ROWS} more")
    return table


def _steps(result: Inspection) -> Text | None:
    marked = [r for r in result.ranks if r.steps]
    if not marked:
        return None
    first = marked[0]
    times = ", ".join(f"{s.name} {s.host_ms:,.2f}" for s in first.steps[:MAX_ROWS])
    more = f", ... {len(first.steps) - MAX_ROWS} more" if len(first.steps) > MAX_ROWS else ""
    head = f" ({len(first.steps)}; host time of rank {first.rank}, ms): "
    return Text.assemble(("Steps", BOLD), head, times, more)


def _collectives(result: Inspection) -> Table | None:
    headings = ("rank", "collective", "dtype", "group", "size", "calls", "kernels", "elements sent")
    return _table("Collectives", headings, [_collective_tds(r, c) for r in result.ranks for c in r.collectives])


def _collective_tds(rank: RankSummary, c: CollectiveSummary) -> tuple[str, ...]:
    size = str(c.group_size) if c.group_size > 0 else "-"
    sent = "-" if math.isnan(c.in_elements) else f"{c.in_elements:,.0f}"
    return (str(rank.rank), c.kind, c.dtype or "-", (c.group or "-")[:24], size, f"{c.calls:,}", f"{c.kernels:,}", sent)


def _execution_traces(result: Inspection) -> Table | None:
    headings = ("execution trace", "schema", "ops", "threads", "shapes")
    rows = [
        (t.name, t.schema, f"{t.ops:,}", str(t.threads), _percent(t.ops_with_shapes)) for t in result.execution_traces
    ]
    return _table("Execution traces (no times)", headings, rows)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
