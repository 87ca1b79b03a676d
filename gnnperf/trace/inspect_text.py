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


def print_inspection(found: Inspection, console: Console) -> None:
    """Ranks, steps, collectives, execution traces, what is missing, warnings."""
    world = "" if found.world_size is None else f", world size {found.world_size}"
    console.print(Text.assemble((found.name, BOLD), f": {len(found.ranks)} rank(s) traced{world}"))
    for section in (_ranks(found), _device_work(found), _steps(found), _collectives(found), _execution_traces(found)):
        if section is not None:
            console.print(section)
    for title, lines in (("Not in this trace", found.missing), ("Warnings", found.warnings)):
        if lines:
            console.print(Text(title, BOLD))
            for line in lines[:MAX_ROWS]:
                console.print(f"  - {line}", soft_wrap=True)
            if len(lines) > MAX_ROWS:
                console.print(f"  - ... {len(lines) - MAX_ROWS} more")


def _ranks(found: Inspection) -> Table | None:
    headings = ("rank", "known by", "window ms", "cpu ops", "shapes", "threads", "device")
    return _table("Ranks", headings, [_rank_cells(r) for r in found.ranks])


def _rank_cells(rank: RankSummary) -> tuple[str, ...]:
    return (
        str(rank.rank), rank.rank_source, f"{rank.duration_ms:,.1f}", f"{rank.events.get('cpu_op', 0):,}",
        _percent(rank.ops_with_shapes), str(rank.threads),
        ", ".join(sorted({d or "(no name)" for d in rank.devices})) or "-",
    )  # fmt: skip


def _device_work(found: Inspection) -> Table | None:
    headings = ("rank", "launches", "kernels", "copies", "streams", "tied to ops", "by", "before window")
    return _table("Device work", headings, [_device_cells(r) for r in found.ranks if r.streams])


def _device_cells(rank: RankSummary) -> tuple[str, ...]:
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


def _steps(found: Inspection) -> Text | None:
    marked = [r for r in found.ranks if r.steps]
    if not marked:
        return None
    first = marked[0]
    times = ", ".join(f"{s.name} {s.host_ms:,.2f}" for s in first.steps[:MAX_ROWS])
    more = f", ... {len(first.steps) - MAX_ROWS} more" if len(first.steps) > MAX_ROWS else ""
    head = f" ({len(first.steps)}; host time of rank {first.rank}, ms): "
    return Text.assemble(("Steps", BOLD), head, times, more)


def _collectives(found: Inspection) -> Table | None:
    headings = ("rank", "collective", "dtype", "group", "size", "calls", "kernels", "elements sent")
    return _table("Collectives", headings, [_collective_cells(r, c) for r in found.ranks for c in r.collectives])


def _collective_cells(rank: RankSummary, c: CollectiveSummary) -> tuple[str, ...]:
    size = str(c.group_size) if c.group_size > 0 else "-"
    sent = "-" if math.isnan(c.in_elements) else f"{c.in_elements:,.0f}"
    return (str(rank.rank), c.kind, c.dtype or "-", (c.group or "-")[:24], size, f"{c.calls:,}", f"{c.kernels:,}", sent)


def _execution_traces(found: Inspection) -> Table | None:
    headings = ("execution trace", "schema", "ops", "threads", "shapes")
    rows = [
        (t.name, t.schema, f"{t.ops:,}", str(t.threads), _percent(t.ops_with_shapes)) for t in found.execution_traces
    ]
    return _table("Execution traces (no times)", headings, rows)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
