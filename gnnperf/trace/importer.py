"""The bytes of one Kineto file -> TraceTable: the pipeline as a table of contents."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from gnnperf.core import schema
from gnnperf.trace import execution_link, linking
from gnnperf.trace.assembly import Assembled
from gnnperf.trace.collectives import add_collectives
from gnnperf.trace.execution_trace import ExecutionTrace
from gnnperf.trace.metadata import Distributed, read_devices
from gnnperf.trace.table import TraceMeta, TraceTable

MIN_MATCHED_SHARE = 0.5  # below it, an execution trace is of another run


@dataclass(frozen=True)
class Origin:
    """Where a table comes from: file, hash, rank and how the rank is known."""

    name: str
    where: str
    sha256: str
    rank: int
    rank_source: str


def import_kineto(
    table: Assembled, origin: Origin, distributed: Distributed, execution_trace: ExecutionTrace | None = None
) -> TraceTable:
    """One rank's table.

    Args:
        table: from `assemble`.
        origin: the file.
        distributed: what the file says about the run.
        execution_trace: of the same rank: completes shapes and says which op feeds which.
    """
    table, feeds, remarks = _with_execution_trace(table, execution_trace)
    links = linking.link(table)
    columns = table.columns | {
        "op_event": links.op_event,
        "launch_event": links.launch_event,
        "link": linking.link_names(links.link),
        "forward_event": linking.forward_events(table),
    }
    columns |= add_collectives(table, links, replace(distributed, rank=origin.rank))
    events = pd.DataFrame({c.name: columns[c.name] for c in schema.EVENT_COLUMNS}, copy=False)
    meta = TraceMeta(
        rank=origin.rank, rank_source=origin.rank_source, world_size=distributed.world_size,
        source_format="kineto" if feeds is None else "execution_trace+kineto", source_file=origin.name,
        source_sha256=origin.sha256, base_time_ns=table.base_ns, devices=read_devices(table.head.deviceProperties),
        backend=distributed.backend, has_shapes=bool((table.columns["input_dims"].codes >= 0).any()),
        link_method=str(links.method),
        warnings=(*_dropped(table.dropped), *linking.repeated_ids(table), *_assumed(origin), *remarks),
    )  # fmt: skip
    return TraceTable(meta, events) if feeds is None else TraceTable(meta, events, feeds)


def _with_execution_trace(
    table: Assembled, trace: ExecutionTrace | None
) -> tuple[Assembled, pd.DataFrame | None, list[str]]:
    """Shapes and feeds of the execution trace, if there is one and it is of this run."""
    if trace is None:
        return table, None, []
    matched = execution_link.match(table, trace)
    said = f"{matched.share:.1%} of the ops of execution trace {trace.name} were found by {matched.key}"
    if matched.share < MIN_MATCHED_SHARE:
        return table, None, [f"{said}: it is of another run and is not used"]
    feeds = execution_link.feeds(trace, matched)
    return execution_link.fill_shapes(table, trace, matched), feeds, [said]


def _dropped(dropped: dict[str, int]) -> list[str]:
    return [f"{count} {reason} were left out" for reason, count in sorted(dropped.items()) if count]


def _assumed(origin: Origin) -> list[str]:
    if origin.rank_source != "assumed":
        return []
    return [f"neither the file nor its name states a rank; rank {origin.rank} is assumed"]
