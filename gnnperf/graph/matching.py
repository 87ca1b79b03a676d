"""Which communication kernels of different ranks belong to one collective.

rank 0   launch order in step k, group g, all_reduce:   a0  a1  a2
rank 1                                                  a0  a1  a2     matched by position
rank 2   lost its first kernel at the window's head:        a1  a2     aligned from the tail
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.graph.node_tables import message_bytes
from gnnperf.graph.rank_graph import RankGraph

_POINT_TO_POINT = ("send", "recv")
_ONE_SIDED = ("broadcast", "reduce", "scatter", "gather")  # not every rank needs every other


@dataclass(frozen=True)
class CommPart:
    """One rank's kernel in a collective.

    Attributes:
        rank_index: position of the rank among the traced ones.
        work: number of the work in its rank.
        step: step ordinal.
        launched_ns: when its launch call began.
        begin_ns, end_ns: extent of the kernel.
        key: (kind, group) that must agree over ranks.
        bytes: message size of this rank; NaN unknown.
        group_size: as the trace says; -1 unknown.
    """

    rank_index: int
    work: int
    step: int
    launched_ns: int
    begin_ns: int
    end_ns: int
    key: tuple[str, str]
    bytes: float
    group_size: int


def comm_parts(ranks: list[RankGraph], steps: list[np.ndarray]) -> list[CommPart]:
    """Every communication kernel of whole steps; `steps` holds [num_works] per rank."""
    parts = []
    for rank_index, (rank, step) in enumerate(zip(ranks, steps, strict=True)):
        works, events = rank.works, rank.events
        kind, group = events.column("collective"), events.column("group")
        size, group_size = message_bytes(events), events.column("group_size")
        for work in np.flatnonzero(works.is_comm & (step >= 0)).tolist():
            event, issuer = int(works.event[work]), int(np.maximum(works.call[work], works.op[work]))
            launched = int(events.start_ns[issuer]) if issuer >= 0 else int(works.begin_ns[work])
            begin, end = int(works.begin_ns[work]), int(works.end_ns[work])
            key = str(kind[event]), str(group[event])
            parts.append(
                CommPart(rank_index, work, int(step[work]), launched, begin, end, key,
                         float(size[event]), int(group_size[event]))
            )  # fmt: skip
    return parts


def match(parts: list[CommPart]) -> list[tuple[CommPart, ...]]:
    """Group the parts into collectives; a group of fewer parts than its group size is incomplete.

    A send's peer is another rank's receive, and no trace says which: each stands alone.
    """
    lanes: dict[tuple[int, tuple[str, str], int], dict[int, list[CommPart]]] = {}
    for part in sorted(parts, key=lambda p: p.launched_ns):
        alone = part.rank_index if part.key[0] in _POINT_TO_POINT else -1
        lanes.setdefault((part.step, part.key, alone), {}).setdefault(part.rank_index, []).append(part)
    matched: list[tuple[CommPart, ...]] = []
    for by_rank in lanes.values():
        longest = max(len(sequence) for sequence in by_rank.values())
        for from_tail in range(longest, 0, -1):
            matched.append(tuple(s[-from_tail] for s in by_rank.values() if len(s) >= from_tail))
    return matched


def early_leavers(groups: list[tuple[CommPart, ...]]) -> list[list[bool]]:
    """Per group and part: a rank that needs nothing of its peers (the root of a broadcast) and leaves when it likes.

    One recording of it leaving before the last peer arrived shows that for every collective of its kind, group and
    size. Where that would leave nobody to wait (the root changes), each recording speaks for itself.
    """
    seen = {_role(p) for g in groups for p in g if _left_early(p, g)}
    result = []
    for group in groups:
        free = [_role(p) in seen for p in group]
        result.append([_left_early(p, group) for p in group] if all(free) else free)
    return result


def _left_early(part: CommPart, group: tuple[CommPart, ...]) -> bool:
    return part.key[0] in _ONE_SIDED and part.end_ns < max(p.begin_ns for p in group)


def _role(part: CommPart) -> tuple[object, ...]:
    return part.rank_index, part.key, part.bytes if part.bytes == part.bytes else None  # NaN: size unknown


def is_complete(group: tuple[CommPart, ...], world_size: int) -> bool:
    """Whether every rank of the group was traced and has its part."""
    stated = max(part.group_size for part in group)
    return len(group) == (stated if stated > 0 else world_size)


def is_consistent(group: tuple[CommPart, ...], tolerance_ns: int = 50_000) -> bool:
    """Whether sizes agree and the parts overlap in time (host clocks of one machine agree to 50 us)."""
    kind = group[0].key[0]
    sizes = {part.bytes for part in group if not np.isnan(part.bytes)}
    overlap = max(p.begin_ns for p in group) <= min(p.end_ns for p in group) + tolerance_ns
    return (overlap or kind in _ONE_SIDED) and (len(sizes) <= 1 or kind == "all_to_all")
