"""Between which ranks a collective runs, where its own metadata does not say: channels of sends, groups of gloo."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnnperf.core import schema
from gnnperf.trace.columns import coded
from gnnperf.trace.kineto import CommArgs
from gnnperf.trace.metadata import ranks_text
from gnnperf.trace.table import TraceTable

# Between which ranks a send or a receive goes: its channel, "[0>1]", is what it has instead of a process group.
#
# rank 0   c10d::send    target 1   [0>1]  |            three places may state the peer, as a rank of the process group:
# rank 1   c10d::recv_   source 0   [0>1]  | one         the op's own inputs (its third; the fourth is a tag), the
#                                                        metadata (torch >= 2.4), the range's name "nccl:send 0->1"

POINT_TO_POINT = ("send", "recv")
CHANNEL = re.compile(r"\[\d{1,8}>\d{1,8}\](?:#\d{1,18})?", re.ASCII)
RANGE_NAME = re.compile(r"\w+:(?:send|recv) (\d{1,8})(?:->|<-)(\d{1,8})$", re.ASCII)
PEER, TAG = 2, 3  # positions in c10d::send(tensors, group, target, tag) and c10d::recv_(tensors, group, source, tag)


def peer_of_metadata(kind: str | None, args: CommArgs | None) -> int | None:
    """The rank of the group that a call's metadata names as its other end."""
    if args is None or kind not in POINT_TO_POINT:
        return None
    return args.target if kind == "send" else args.source


def peer_of_name(name: str) -> int | None:
    """The rank of the group that a range's name gives as its other end."""
    result = RANGE_NAME.match(name)
    return int(result[2]) if result else None


def peer_of_inputs(name: str, values: Any) -> tuple[int, int] | None:
    """(rank of the group, tag) that an op's inputs name; None unknown, or any rank."""
    if not name.startswith(("c10d::send", "c10d::recv_")) or name.startswith("c10d::recv_any"):
        return None
    try:
        return int(values[PEER]), int(values[TAG])
    except (TypeError, ValueError, IndexError):
        return None


def channel(kind: str, rank: int, peer: int, group_ranks: Sequence[int], tag: int = 0) -> str | None:
    """The channel of a call of global rank `rank` with rank `peer` of its group; None if the group has no such rank."""
    if not 0 <= peer < len(group_ranks) or rank not in group_ranks:
        return None
    source, target = (rank, group_ranks[peer]) if kind == "send" else (group_ranks[peer], rank)
    return f"[{source}>{target}]" + (f"#{tag}" if tag > 0 else "")


def is_channel(group: str | None) -> bool:
    """Whether a group's text is a channel."""
    return group is not None and CHANNEL.fullmatch(group) is not None


# The process group of gloo's collectives: their ranges do not state it, the file lists the rank's groups.

Group = tuple[int, ...]  # its ranks


def name_groups(tables: Sequence[TraceTable], groups: Mapping[int, Sequence[Group]]) -> list[TraceTable]:
    """The tables with the group of gloo's collectives, where a rank has one group only; else they stay without."""
    result = []
    for table in tables:
        events, own = table.events, set(groups.get(table.meta.rank, ()))
        name, kind = events["name"].cat, events["collective"]
        is_gloo = np.array([*(text.startswith("gloo:") for text in name.categories), False])[name.codes]
        of_gloo = is_gloo & kind.notna() & ~kind.isin(POINT_TO_POINT) & events["group"].isna()
        if len(own) == 1 and of_gloo.any():
            (ranks,), stated = own, events["group"].astype(object)
            group = stated.where(stated.notna(), None).mask(of_gloo, ranks_text(ranks))
            size = events["group_size"].mask(of_gloo, len(ranks)).astype(events["group_size"].dtype)
            named = schema.categorical(*coded(group.tolist()))
            table = replace(table, events=events.assign(group=named, group_size=size))
        result.append(table)
    return result
