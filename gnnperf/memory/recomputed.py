"""Activation checkpointing: ops of the forward that the backward runs once more, to make again what was not kept.

forward    addmm [7] gelu [8] mm [9]           nothing kept but what goes in
backward   node [9]: addmm gelu | mm's backward      the first node that needs something runs them again
           node [8] ...                        what the second run keeps goes with the nodes of the first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnperf.memory.step_calls import Call


def first_runs(calls: Sequence[Call]) -> dict[int, Call]:
    """Event of an op that ran again -> the call of its first run."""
    run = {call.sequence for call in calls if call.is_node} - {-1}
    forward = [call for call in calls if call.is_op and call.node < 0]
    found: dict[int, Call] = {}
    taken: set[int] = set()
    for again in _stretches(calls, run):
        first = _first(forward, again, run, taken)
        found.update({one.event: before for one, before in zip(again, first, strict=False)})
        taken.update(call.event for call in first)
    return found


def _stretches(calls: Sequence[Call], run: set[int]) -> Iterator[list[Call]]:
    """Ops in one node of the backward that autograd follows and for which no node runs."""
    by_node: dict[int, list[Call]] = {}
    for call in calls:
        if call.is_op and call.node >= 0 and call.sequence >= 0 and call.sequence not in run:
            by_node.setdefault(call.node, []).append(call)
    yield from by_node.values()


def _first(forward: Sequence[Call], again: Sequence[Call], run: set[int], taken: set[int]) -> Sequence[Call]:
    """The last stretch of the forward with the same ops on the same shapes; () if there is none."""
    length = len(again)
    for begin in range(len(forward) - length, -1, -1):
        stretch = forward[begin : begin + length]
        same = all(a.name == b.name and a.slots == b.slots for a, b in zip(stretch, again, strict=True))
        if same and any(c.sequence in run for c in stretch) and not any(c.event in taken for c in stretch):
            return stretch
    return ()
