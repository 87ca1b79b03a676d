"""What a trace holds, and what it lacks: ranks, steps, shapes, collectives, links, devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnperf.core import DEVICE_KINDS, EventKind, Link
from gnnperf.trace.checks import step_rows
from gnnperf.trace.table import RunTrace, TraceTable

MAX_ROWS = 16
BOLD = "bold"
COLLECTIVE_KEYS = ["collective", "comm_dtype", "group", "group_size"]


@dataclass(frozen=True)
class RankSummary:
    """One rank."""

    rank: int
    rank_source: str  # how the rank is known
    duration_ms: float  # first start to last end
    events: dict[str, int]  # count by EventKind
    steps: tuple[tuple[str, float], ...]  # name and host time in ms of each step mark, in order
    ops_with_shapes: float  # share of CPU ops that have input shapes; NaN without ops
    link_method: str  # how device work was tied
    links: dict[str, int]  # device events by Link
    devices: tuple[str, ...]  # names of the devices that did work ("" where the trace does not name them)
    streams: int
    threads: int  # host threads
    feeds: int  # tensor dependencies
    # by COLLECTIVE_KEYS: calls, kernels, and elements sent over all of them (NaN unknown)
    collectives: pd.DataFrame

    @property
    def tied_share(self) -> float:
        """Device events tied to a CPU op, among those launched inside the window; NaN without any."""
        inside = sum(self.links.values()) - self.links.get(str(Link.BEFORE_WINDOW), 0)
        tied = self.links.get(str(Link.EXTERNAL_ID), 0) + self.links.get(str(Link.CORRELATION), 0)
        return tied / inside if inside else float("nan")


@dataclass(frozen=True)
class Inspection:
    """What a path holds."""

    name: str  # of the run
    world_size: int  # ranks of the run, traced or not
    ranks: tuple[RankSummary, ...]  # traced ranks
    missing: tuple[str, ...]  # what the trace does not hold and a prediction would use
    warnings: tuple[str, ...]  # as for reading


def inspect(run: RunTrace) -> Inspection:
    """Look into a run that was read."""
    ranks = tuple(_rank(t) for t in run.tables)
    return Inspection(run.name, run.world_size, ranks, tuple(_missing(ranks, run)), run.warnings)


def _rank(table: TraceTable) -> RankSummary:
    events, kind = table.events, table.events["kind"]
    device = kind.isin([str(k) for k in DEVICE_KINDS]).to_numpy()
    ops = (kind == EventKind.CPU_OP).to_numpy()
    steps = events.loc[step_rows(table), ["name", "duration_ns"]]
    used = sorted(set(events.loc[device, "device"]))
    names = tuple(table.meta.devices[d].name if 0 <= d < len(table.meta.devices) else "" for d in used)
    return RankSummary(
        rank=table.meta.rank, rank_source=table.meta.rank_source,
        duration_ms=float((events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min()) / 1e6,
        events=_counts(kind), steps=tuple((str(n), d / 1e6) for n, d in steps.to_numpy()),
        ops_with_shapes=float(events.loc[ops, "input_dims"].notna().mean()) if ops.any() else float("nan"),
        link_method=table.meta.link_method, links=_counts(events.loc[device, "link"]), devices=names,
        streams=len(events.loc[device, ["device", "stream"]].drop_duplicates()),
        threads=int(events.loc[events["thread"] >= 0, "thread"].nunique()), feeds=len(table.feeds),
        collectives=_collectives(events),
    )  # fmt: skip


def _counts(column: pd.Series) -> dict[str, int]:
    return {str(k): int(n) for k, n in column.value_counts().items() if n}


def _collectives(events: pd.DataFrame) -> pd.DataFrame:
    """Elements are those of the kernels where there are any, else of the ranges nccl:, gloo:, one per call."""
    rows = events[events["collective"].notna()]
    plain = {key: rows[key].astype(object).fillna("-") for key in COLLECTIVE_KEYS[:3]}
    rows = rows.assign(**plain, calls=rows["kind"] == EventKind.ANNOTATION, kernels=rows["kind"] == EventKind.KERNEL)
    counted = rows["kernels"] | (rows["calls"] & ~rows.groupby(COLLECTIVE_KEYS)["kernels"].transform("any"))
    groups = rows.assign(in_elements=rows["in_elements"].where(counted)).groupby(COLLECTIVE_KEYS)
    sums = groups[["calls", "kernels"]].sum()
    return sums.assign(in_elements=groups["in_elements"].sum(min_count=1)).reset_index()


def _missing(ranks: tuple[RankSummary, ...], run: RunTrace) -> list[str]:
    """What the trace does not hold, each with what it would take."""
    unsized = any((r.collectives["kernels"].gt(0) & r.collectives["in_elements"].isna()).any() for r in ranks)
    lacks = {
        "times: the program was captured, not run": run.is_captured,
        "step marks: call profiler.step() after each step": not all(r.steps for r in ranks),
        "device work": not any(r.links for r in ranks),
        "shapes: record with record_shapes=True, or give the execution trace too":
            not any(r.ops_with_shapes > 0 for r in ranks),
        "tensor dependencies: give the execution trace too": not any(r.feeds for r in ranks),
        "device names": any(not name for r in ranks for name in r.devices),
        "sizes of collectives": unsized,
        f"{run.world_size - len(ranks)} of {run.world_size} ranks": run.world_size > len(ranks),
    }  # fmt: skip
    return [text for text, is_lacking in lacks.items() if is_lacking]


def document(result: Inspection) -> dict[str, object]:
    """All of it as JSON has it."""
    ranks = [
        vars(rank) | {"steps": [{"name": name, "host_ms": host_ms} for name, host_ms in rank.steps],
                      "tied_share": rank.tied_share, "collectives": rank.collectives.to_dict("records")}
        for rank in result.ranks
    ]  # fmt: skip
    return vars(result) | {"ranks": ranks}


def print_inspection(result: Inspection, console: Console) -> None:
    """Ranks, steps, collectives, what is missing, warnings."""
    traced = f": {len(result.ranks)} rank(s) traced, world size {result.world_size}"
    console.print(Text.assemble((result.name, BOLD), traced))
    _print_table(console, "Ranks", "rank; known by; window ms; cpu ops; shapes; threads; device", [
        (r.rank, r.rank_source, f"{r.duration_ms:,.1f}", f"{r.events.get('cpu_op', 0):,}", _percent(r.ops_with_shapes),
         r.threads, ", ".join(sorted({d or "(no name)" for d in r.devices})) or "-")
        for r in result.ranks
    ])  # fmt: skip
    headings = "rank; launches; kernels; copies; streams; tied to ops; by; before window"
    _print_table(console, "Device work", headings, [
        (r.rank, f"{r.events.get('runtime', 0):,}", f"{r.events.get('kernel', 0):,}",
         f"{r.events.get('memcpy', 0) + r.events.get('memset', 0):,}", r.streams, _percent(r.tied_share),
         r.link_method, f"{r.links.get('before_window', 0):,}")
        for r in result.ranks if r.streams
    ])  # fmt: skip
    rank = next((r for r in result.ranks if r.steps), None)
    if rank is not None:
        times = ", ".join(f"{name} {host_ms:,.2f}" for name, host_ms in rank.steps[:MAX_ROWS])
        others = f", ... {len(rank.steps) - MAX_ROWS} more" if len(rank.steps) > MAX_ROWS else ""
        about = f" ({len(rank.steps)}; host time of rank {rank.rank}, ms): "
        console.print(Text.assemble(("Steps", BOLD), about, times, others))
    _print_table(console, "Collectives", "rank; collective; dtype; group; size; calls; kernels; elements sent", [
        (r.rank, kind, dtype, group[:24], size if size > 0 else "-", f"{calls:,}", f"{kernels:,}",
         "-" if math.isnan(elements) else f"{elements:,.0f}")
        for r in result.ranks for kind, dtype, group, size, calls, kernels, elements in r.collectives.to_numpy()
    ])  # fmt: skip
    for title, lines in (("Not in this trace", result.missing), ("Warnings", result.warnings)):
        more = [f"... {len(lines) - MAX_ROWS} more"] if len(lines) > MAX_ROWS else []
        if lines:
            console.print(Text(title, BOLD))
        for line in (*lines[:MAX_ROWS], *more):
            console.print(f"  - {line}", soft_wrap=True)


def _print_table(console: Console, title: str, headings: str, rows: Sequence[Sequence[object]]) -> None:
    if not rows:
        return
    table = Table(*headings.split("; "), title=title, title_justify="left", box=SIMPLE)
    for row in rows[:MAX_ROWS]:
        table.add_row(*map(str, row))
    if len(rows) > MAX_ROWS:
        table.add_row("...", f"{len(rows) - MAX_ROWS} more")
    console.print(table)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
