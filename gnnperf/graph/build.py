"""RunTrace -> ExecutionGraph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, each
from gnnperf.graph.clock import clock_bracket, correct_clock
from gnnperf.graph.collectives import collective_nodes
from gnnperf.graph.direct import settle
from gnnperf.graph.event_columns import RankEvents, rank_events
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.feeds import feed_edges
from gnnperf.graph.hardware_nodes import add_hardware
from gnnperf.graph.host_comm import host_comm
from gnnperf.graph.labels import measured_lags, step_labels
from gnnperf.graph.matching import comm_parts, match
from gnnperf.graph.rank_draft import RankDraft, rank_draft
from gnnperf.graph.rank_graph import RankGraph, rank_graph
from gnnperf.graph.steps import StepWindows, step_marks, step_windows
from gnnperf.graph.table_counts import table_counts
from gnnperf.graph.tables import concat_tables
from gnnperf.hardware import placement_of
from gnnperf.trace import RunTrace


def build_graph(run: RunTrace) -> ExecutionGraph:
    """The execution graph of a run: device clocks corrected, all ranks joined.

    Raises:
        InputError: a rank has no events.
    """
    return graph_of_corrected(correct_clocks(run))


def correct_clocks(run: RunTrace) -> RunTrace:
    """The run with each rank's device clock moved into the bracket its own launches and waits give."""
    base = run_base_time_ns(run)
    asked = each(run.tables, "comparing clocks", "ranks")
    shifts = [clock_bracket(rank_events(table, base)).shift_ns for table in asked]
    tables = tuple(correct_clock(table, shift) for table, shift in zip(run.tables, shifts, strict=True))
    moved = [f"rank {t.meta.rank}: {s / 1000:+.1f} us" for t, s in zip(tables, shifts, strict=True) if abs(s) > 5_000]
    note = (f"device clocks moved against their hosts: {', '.join(moved)}",) if moved else ()
    return replace(run, tables=tables, warnings=(*run.warnings, *note))


def graph_of_corrected(run: RunTrace) -> ExecutionGraph:
    """The graph of a run whose clocks are right. An order-preserving warp of its times changes labels only."""
    base = run_base_time_ns(run)
    events = [rank_events(table, base) for table in run.tables]
    windows = step_windows(events)
    ranks = _rank_graphs(
        [rank_draft(e, windows, i) for i, e in enumerate(each(events, "finding host segments", "ranks"))], windows
    )
    offsets = np.cumsum([0, *(len(r.nodes) for r in ranks)]).tolist()
    nodes = concat_tables([r.nodes for r in ranks])
    steps = [r.nodes["step"].to_numpy()[r.first_node] for r in ranks]
    groups = match(comm_parts(ranks, steps, [r.hidden for r in ranks]))
    joint = collective_nodes(groups, ranks, offsets, nodes, run.world_size)
    nodes = _with_exits(nodes, joint.exit_node, joint.exit_us)
    nodes = concat_tables([nodes, joint.nodes])
    edges = concat_tables([
        *(r.edges.shifted(o).table() for r, o in zip(ranks, offsets, strict=False)),
        joint.edges.table(),
        feed_edges(ranks, offsets, nodes).table(),
    ])  # fmt: skip
    nodes = nodes.assign(node_id=np.arange(len(nodes), dtype=np.int64))
    edges = edges.assign(lag_us=measured_lags(nodes, edges))
    device_names = tuple(_device_name(run, i) for i in range(len(run.tables)))
    graph = ExecutionGraph(
        name=run.name, nodes=nodes, edges=edges, steps=step_labels(ranks, windows, nodes),
        ranks=tuple(e.rank for e in events), world_size=run.world_size, device_names=device_names,
        placement=placement_of(run.card), tables=table_counts(run.card),
        counts=_counts(ranks, joint.counts), warnings=(*run.warnings, *_warnings(windows, events)),
    )  # fmt: skip
    return add_hardware(graph).validate()


def _rank_graphs(drafts: list[RankDraft], windows: StepWindows) -> list[RankGraph]:
    """Every rank by itself; where host collectives are waited for is decided for those without device work together."""
    without = [i for i, draft in enumerate(drafts) if not draft.on_device]
    tied = dict(zip(without, settle(host_comm([drafts[i] for i in without])), strict=True))
    return [
        rank_graph(*tied[i], windows) if i in tied else rank_graph(draft, None, windows)
        for i, draft in enumerate(each(drafts, "building the graph", "ranks"))
    ]


def run_base_time_ns(run: RunTrace) -> int:
    """Absolute time of the run's first event: graph times are relative to it.

    Raises:
        InputError: a rank has no events.
    """
    empty = [str(table.meta.rank) for table in run.tables if not len(table.events)]
    if empty or not run.tables:
        raise InputError(
            f"rank {', '.join(empty)} holds no events" if empty else "holds no ranks", where=f"run {run.name!r}",
            remedy="leave the empty file out, or record the rank again",
        )  # fmt: skip
    return min(table.meta.base_time_ns + int(table.events["start_ns"].min()) for table in run.tables)


def _with_exits(nodes: pd.DataFrame, exit_node: np.ndarray, exit_us: np.ndarray) -> pd.DataFrame:
    """Exit latencies, and starts such that start + latency is the measured end (unknown: the end itself)."""
    latency, start = nodes["latency_us"].to_numpy(copy=True), nodes["start_us"].to_numpy(copy=True)
    latency[exit_node] = exit_us
    start[exit_node] -= np.nan_to_num(exit_us)
    return nodes.assign(latency_us=latency, start_us=start)


def _device_name(run: RunTrace, rank_index: int) -> str:
    """The rank's own device; a file may list more devices than ranks, all of one kind or none named."""
    devices = run.tables[rank_index].meta.devices
    return devices[min(rank_index, len(devices) - 1)].name if devices else ""


def _counts(ranks: list[RankGraph], joint: dict[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for rank in ranks:
        for reason, count in rank.counts.items():
            total[reason] = total.get(reason, 0) + count
    return total | joint


def _warnings(windows: StepWindows, events: list[RankEvents]) -> tuple[str, ...]:
    if windows.has_marks:
        return ()
    marked = [str(e.rank) for e in events if step_marks(e)]
    cause = "the trace has no ProfilerStep marks"
    if marked:
        cause = f"the ranks have no ProfilerStep mark in common (ranks with marks: {', '.join(marked)})"
    return (f"{cause}: the whole window is treated as one step of kind 'window'",)
