"""What a rank's nodes wait for on their own rank, beside the order of their thread and streams.

host      |T1|T2|T4|T3|T1|T2|T4|T3| ... |await|T1|T2|T4|T3|
                `launches    `launches                `
compute         |-- kernel --|   |-- kernel --|       |-- kernel --|
                             `event                   | event
transfers                     arrive .......... exit -'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gnnperf.generate.recommendation.items import Await, Item, Transfer
from gnnperf.generate.transformer.items import HostWait, Views
from gnnperf.generate.transformer.rows import FIRST_WORK

Pair = tuple[int, int]


@dataclass
class Waits:
    """Edges of one rank, in its own numbers, as they are found item by item.

    Attributes:
        launches, events, syncs: (from, to).
        arrivals: transfer's name -> node where this rank arrives; it leaves at the next one.
    """

    launches: list[Pair] = field(default_factory=list)
    events: list[Pair] = field(default_factory=list)
    syncs: list[Pair] = field(default_factory=list)
    arrivals: dict[str, int] = field(default_factory=dict)


@dataclass
class _Reached:
    """Where the rank is: its last kernel (-1: none yet), and exits that the next kernel, and the host, wait for."""

    kernel: int = -1
    awaited: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)


def waits_of(program: Sequence[Item], first: Sequence[int], launch_at: int) -> Waits:
    """The edges of a program.

    Args:
        program: items in order.
        first: of each item its first node.
        launch_at: which of an item's host nodes launches.
    """
    found, reached = Waits(), _Reached()
    for item, node in zip(program, first, strict=True):
        if isinstance(item, Await):
            exits = [found.arrivals[name] + 1 for name in item.names]
            reached.awaited += exits
            reached.unseen += exits
        elif isinstance(item, HostWait):
            _host_waits(found, reached, node)
        elif not isinstance(item, Views):
            found.launches.append((node + launch_at, node + FIRST_WORK))
            _issued(found, reached, item, node + FIRST_WORK)
    return found


def _host_waits(found: Waits, reached: _Reached, node: int) -> None:
    """For the last kernel, and for transfers that kernels issued before it wait for."""
    found.syncs += [(source, node) for source in (reached.kernel, *reached.unseen) if source >= 0]
    reached.unseen = []


def _issued(found: Waits, reached: _Reached, item: Item, work: int) -> None:
    """A kernel waits for awaited transfers; a transfer for the kernels before it, and for those as well."""
    found.events += [(source, work) for source in reached.awaited]
    if isinstance(item, Transfer):
        found.arrivals[item.name] = work
        found.events += [(reached.kernel, work)] if reached.kernel >= 0 else []
    else:
        reached.kernel, reached.awaited = work, []
