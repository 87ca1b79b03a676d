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
            event, call = int(works.event[work]), int(works.call[work])
            launched = int(events.start_ns[call]) if call >= 0 else int(works.begin_ns[work])
            parts.append(
                CommPart(rank_index, work, int(step[work]), launched, int(works.begin_ns[work]), int(works.end_ns[work]),
                         (str(kind[event]), str(group[event])), float(size[event]), int(group_size[event]))
            )  # fmt: skip
    return parts


def match(parts: list[CommPart], world_size: int) -> list[tuple[CommPart, ...]]:
    """Group the parts into collectives; a group of fewer parts than its group size is incomplete."""
    lanes: dict[tuple[int, tuple[str, str]], dict[int, list[CommPart]]] = {}
    for part in sorted(parts, key=lambda p: p.launched_ns):
        lanes.setdefault((part.step, part.key), {}).setdefault(part.rank_index, []).append(part)
    matched: list[tuple[CommPart, ...]] = []
    for by_rank in lanes.values():
        longest = max(len(sequence) for sequence in by_rank.values())
        for from_tail in range(longest, 0, -1):
            matched.append(tuple(s[-from_tail] for s in by_rank.values() if len(s) >= from_tail))
    return matched


def is_complete(group: tuple[CommPart, ...], world_size: int) -> bool:
    """Whether every rank of the group was traced and has its part."""
    stated = max(part.group_size for part in group)
    return len(group) == (stated if stated > 0 else world_size)


def is_consistent(group: tuple[CommPart, ...], tolerance_ns: int = 50_000) -> bool:
    """Whether sizes agree and the parts overlap in time (host clocks of one machine agree to 50 us)."""
    sizes = {part.bytes for part in group if not np.isnan(part.bytes)}
    uneven = group[0].key[0].startswith("all_to_all")
    overlap = max(p.begin_ns for p in group) <= min(p.end_ns for p in group) + tolerance_ns
    return overlap and (uneven or len(sizes) <= 1)
