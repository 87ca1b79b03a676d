"""The bytes of one Kineto file -> TraceTable: the pipeline as a table of contents."""

from __future__ import annotations

import pandas as pd

from gnnperf import schema
from gnnperf.errors import InputError
from gnnperf.trace import kineto, linking
from gnnperf.trace.assemble import assemble
from gnnperf.trace.collectives import add_collectives
from gnnperf.trace.kineto import TraceFile
from gnnperf.trace.metadata import rank_from_name, read_devices, read_distributed
from gnnperf.trace.table import TraceMeta, TraceTable


def import_kineto(head: TraceFile, name: str, sha256: str) -> TraceTable:
    """One rank's table from the decoded top level of its file.

    Args:
        head: from `kineto.read_head`.
        name: the file's base name, for messages and for the rank.
        sha256: of the file as found.

    Raises:
        InputError: the events are cut off, of no known form, or none is left.
    """
    decoded = kineto.decode(head, name)
    with kineto.no_collection():
        table = assemble(decoded)
        if not len(table.events):
            raise InputError("holds no event that can be used", where=name, remedy="record at least one whole step")
        links = linking.link(table)
        distributed = read_distributed(head.distributedInfo)
        columns = table.columns | {
            "op_event": links.op_event,
            "launch_event": links.launch_event,
            "link": linking.link_names(links.link),
            "forward_event": linking.forward_events(table, decoded.flows),
        }
        columns |= add_collectives(table, links, distributed, decoded.dropped)
        events = pd.DataFrame({c.name: columns[c.name] for c in schema.EVENT_COLUMNS}, copy=False)
    rank, rank_source = _rank(distributed.rank, name)
    meta = TraceMeta(
        rank=rank, rank_source=rank_source, world_size=distributed.world_size, source_format="kineto",
        source_file=name, source_sha256=sha256, base_time_ns=table.base_ns, devices=read_devices(head.deviceProperties),
        backend=distributed.backend, has_shapes=bool((table.columns["input_dims"].codes >= 0).any()),
        link_method=str(links.method), warnings=_warnings(decoded.dropped, rank_source),
    )  # fmt: skip
    return TraceTable(meta, events)


def _rank(stated: int | None, name: str) -> tuple[int, str]:
    if stated is not None:
        return stated, "metadata"
    named = rank_from_name(name)
    return (named, "file name") if named is not None else (0, "assumed")


def _warnings(dropped: dict[str, int], rank_source: str) -> tuple[str, ...]:
    found = [f"{count} {reason} were left out" for reason, count in sorted(dropped.items()) if count]
    if rank_source == "assumed":
        found.append("neither the file nor its name states a rank; rank 0 is assumed")
    return tuple(found)
