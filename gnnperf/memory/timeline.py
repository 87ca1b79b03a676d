"""The largest sum of what is there at one time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gnnperf.memory.peak import Part


@dataclass(frozen=True)
class Stay:
    """Memory that is there from one time to another.

    Attributes:
        num_bytes: asked for.
        from_ns, to_ns: both included: what an op returns and what it takes are there together.
        part: what for.
        made_by: op; "" unknown.
    """

    num_bytes: int
    from_ns: int
    to_ns: int
    part: Part
    made_by: str


def peak_of(stays: Sequence[Stay], block_bytes: Callable[[int], int]) -> tuple[dict[Part, int], str]:
    """What is there when most is there, by part, and the op that made the last of it.

    Args:
        stays: in any order.
        block_bytes: what the allocator hands out for so many bytes.
    """
    moves = sorted(
        [(s.from_ns, 0, i) for i, s in enumerate(stays)] + [(s.to_ns, 1, i) for i, s in enumerate(stays)]
    )  # what begins at a time is there before what ends at it has gone
    there = most = 0
    peak_at, peak_by = -1, ""
    for at_ns, ends, number in moves:
        stay = stays[number]
        there += -stay.num_bytes if ends else stay.num_bytes
        if there > most:
            most, peak_at, peak_by = there, at_ns, stay.made_by
    present = [s for s in stays if s.from_ns <= peak_at <= s.to_ns]
    parts: Counter[Part] = Counter()
    for stay in present:
        parts[stay.part] += stay.num_bytes
    rounding = sum(block_bytes(s.num_bytes) - s.num_bytes for s in present)
    return {**{part: parts[part] for part in Part if parts[part]}, Part.ROUNDING: rounding}, peak_by
