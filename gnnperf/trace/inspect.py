"""What a trace holds, and what it lacks: ranks, steps, shapes, collectives, links, devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from gnnperf.core import DEVICE_KINDS, EventKind, InputError, Link
from gnnperf.trace.checks import step_rows
from gnnperf.trace.execution_trace import ExecutionTrace
from gnnperf.trace.reader import read_execution_traces, read_run, without_folder
from gnnperf.trace.table import RunTrace, TraceTable


@dataclass(frozen=True)
class StepSummary:
    """One step mark of a rank: its name, and how long the host was in it."""

    name: str
    host_ms: float


@dataclass(frozen=True)
class CollectiveSummary:
    """Collectives of one rank with one kind, dtype and group; elements sent over all of them, NaN unknown."""

    kind: str
    dtype: str | None
    group: str | None
    group_size: int
    calls: int
    kernels: int
    in_elements: float


@dataclass(frozen=True)
class RankSummary:
    """One rank.

    Attributes:
        rank, rank_source: and how it is known.
        file: base name.
        duration_ms: first start to last end.
        events: count by EventKind.
        steps: step marks in order.
        ops_with_shapes: share of CPU ops that have input shapes; NaN without ops.
        link_method: how device work was tied.
        links: device events by Link.
        devices: names of the devices that did work ("" where the trace does not name them).
        streams, threads: how many.
        feeds: tensor dependencies from an execution trace.
        collectives: by kind, dtype and group.
    """

    rank: int
    rank_source: str
    file: str
    duration_ms: float
    events: dict[str, int]
    steps: tuple[StepSummary, ...]
    ops_with_shapes: float
    link_method: str
    links: dict[str, int]
    devices: tuple[str, ...]
    streams: int
    threads: int
    feeds: int
    collectives: tuple[CollectiveSummary, ...]


@dataclass(frozen=True)
class ExecutionTraceSummary:
    """An execution trace without its Kineto file: it has ops and shapes, no times."""

    name: str
    schema: str
    ops: int
    threads: int
    ops_with_shapes: float


@dataclass(frozen=True)
class Inspection:
    """What a path holds.

    Attributes:
        name: of the run.
        world_size: ranks of the run, traced or not; None for execution traces only.
        ranks: traced ranks.
        execution_traces: those without a Kineto file.
        missing: what the trace does not hold and a prediction would use.
        warnings: as for reading.
    """

    name: str
    world_size: int | None
    ranks: tuple[RankSummary, ...]
    execution_traces: tuple[ExecutionTraceSummary, ...]
    missing: tuple[str, ...]
    warnings: tuple[str, ...]


def inspect(path: Path | list[Path]) -> Inspection:
    """Look into a trace.

    Raises:
        InputError: nothing that can be read.
    """
    try:
        return inspect_run(read_run(path))
    except InputError as error:
        traces = read_execution_traces(path)
        if not traces:
            raise
        summaries = tuple(_execution_trace(t) for t in traces)
        warnings = (str(without_folder(error)),)
        return Inspection(traces[0].name, None, (), summaries, ("times: an execution trace has none",), warnings)


def inspect_run(run: RunTrace) -> Inspection:
    """Look into a run that was read."""
    ranks = tuple(_rank(t) for t in run.tables)
    return Inspection(run.name, run.world_size, ranks, (), tuple(_missing(ranks, run)), run.warnings)


def _rank(table: TraceTable) -> RankSummary:
    events, kind = table.events, table.events["kind"]
    device = kind.isin([str(k) for k in DEVICE_KINDS]).to_numpy()
    ops = (kind == EventKind.CPU_OP).to_numpy()
    steps = events.loc[step_rows(table), ["name", "duration_ns"]]
    used = sorted(set(events.loc[device, "device"]))
    names = tuple(table.meta.devices[d].name if 0 <= d < len(table.meta.devices) else "" for d in used)
    return RankSummary(
        rank=table.meta.rank, rank_source=table.meta.rank_source, file=table.meta.source_file,
        duration_ms=float((events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min()) / 1e6,
        events=_counts(kind), steps=tuple(StepSummary(str(n), d / 1e6) for n, d in steps.to_numpy()),
        ops_with_shapes=float(events.loc[ops, "input_dims"].notna().mean()) if ops.any() else float("nan"),
        link_method=table.meta.link_method, links=_counts(events.loc[device, "link"]), devices=names,
        streams=len(events.loc[device, ["device", "stream"]].drop_duplicates()),
        threads=int(events.loc[events["thread"] >= 0, "thread"].nunique()), feeds=len(table.feeds),
        collectives=_collectives(events),
    )  # fmt: skip


def _counts(column: pd.Series) -> dict[str, int]:
    return {str(k): int(n) for k, n in column.value_counts().items() if n}


def _collectives(events: pd.DataFrame) -> tuple[CollectiveSummary, ...]:
    result = events[events["collective"].notna()]
    keys = ["collective", "comm_dtype", "group", "group_size"]
    plain = {key: result[key].astype(object).fillna("") for key in keys[:3]}
    parts = []
    for key, rows in result.assign(**plain).groupby(keys, sort=True):
        kind, dtype, group, size = cast(tuple[str, str, str, int], key)
        is_kernel = (rows["kind"] == EventKind.KERNEL).to_numpy()
        ranges = (rows["kind"] == EventKind.ANNOTATION).to_numpy()  # nccl:, gloo: one per call
        sent = rows.loc[is_kernel if is_kernel.any() else ranges, "in_elements"]
        elements = float(sent.sum()) if sent.notna().any() else float("nan")
        part = CollectiveSummary(kind, dtype or None, group or None, int(size), int(ranges.sum()), int(is_kernel.sum()),
                                 elements)  # fmt: skip
        parts.append(part)
    return tuple(parts)


def _missing(ranks: tuple[RankSummary, ...], run: RunTrace) -> list[str]:
    """What the trace does not hold, each with what it would take."""
    lacks = {
        "step marks: call profiler.step() after each step": not all(r.steps for r in ranks),
        "device work": not any(_device_events(r) for r in ranks),
        "shapes: record with record_shapes=True, or give the execution trace too":
            not any(r.ops_with_shapes > 0 for r in ranks),
        "tensor dependencies: give the execution trace too": not any(r.feeds for r in ranks),
        "device names": any(not name for r in ranks for name in r.devices),
        "sizes of collectives": any(c.kernels and np.isnan(c.in_elements) for r in ranks for c in r.collectives),
        f"{run.world_size - len(ranks)} of {run.world_size} ranks": run.world_size > len(ranks),
    }  # fmt: skip
    return [text for text, is_lacking in lacks.items() if is_lacking]


def _device_events(rank: RankSummary) -> int:
    return sum(rank.events.get(str(k), 0) for k in DEVICE_KINDS)


def tied_share(rank: RankSummary) -> float:
    """Device events tied to a CPU op, among those launched inside the window; NaN without any."""
    inside = sum(rank.links.values()) - rank.links.get(str(Link.BEFORE_WINDOW), 0)
    tied = rank.links.get(str(Link.EXTERNAL_ID), 0) + rank.links.get(str(Link.CORRELATION), 0)
    return tied / inside if inside else float("nan")


def _execution_trace(trace: ExecutionTrace) -> ExecutionTraceSummary:
    shaped = np.mean([any(str(t).startswith("Tensor") for t in n.types) for n in trace.nodes])
    threads = len({n.thread for n in trace.nodes})
    return ExecutionTraceSummary(trace.name, trace.schema, len(trace.nodes), threads, float(shaped))
