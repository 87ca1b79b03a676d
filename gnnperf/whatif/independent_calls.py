"""Which calls may run as one: equal calls of one thread of which none needs what another one makes.

looked up   [bag 1] [reshape] [bag 2] [stack]       nobody takes [64,16] between bag 1 and bag 2: one lookup
stacked     [linear] [gelu] [linear] [gelu]         gelu takes [8,32], what linear makes: two calls

By `feeds` edges within a phase where a thread has any, else by shapes: a call whose result may be taken before the next
equal call is not fused with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gnnperf.generate import Shape, parse, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batched_shapes import may_be, result
from gnnperf.whatif.consumers import ALLOCATES, fed_by

NEVER = np.iinfo(np.int64).max


def independent_groups(graph: ExecutionGraph, calls: pd.DataFrame, unit: np.ndarray) -> tuple[list[np.ndarray], int]:
    """([n] units of calls that may be one, each group in order of execution; how many calls nothing is known about).

    Args:
        graph: the graph.
        calls: of `call_table`, of which those that are free are fused.
        unit: [num_nodes] number of the call of each node.
    """
    fed = _fed_units(graph, unit)
    groups: list[np.ndarray] = []
    unknown = 0
    for _, lane in calls.groupby(["lane", "step"], sort=False):
        known = any(one in fed for one in lane["unit"])
        takes = _Takes(lane)
        keys = ["op_name", "input_dims", "phase", "num_works"]
        for _, alike in lane[lane["is_free"] & (lane["num_works"] > 0)].groupby(keys, sort=False, observed=True):
            if len(alike) < 2:
                continue
            first = alike.iloc[0]
            pattern = result(str(first["op_name"]), parse(str(first["input_dims"]))) if first["input_dims"] else None
            if pattern is None and not known:
                unknown += len(alike)
                continue
            taken = {one: fed.get(one, NEVER) if known else takes.after(one, pattern) for one in alike["unit"]}
            groups += [group for group in _runs(taken) if len(group) > 1]
    return groups, unknown


def _runs(taken: dict[int, int]) -> Iterator[np.ndarray]:
    """Calls in order, cut where the result of one before is taken: number of a call -> number of who takes it."""
    group: list[int] = []
    limit = NEVER
    for one, taker in taken.items():
        if group and one >= limit:
            yield np.array(group)
            group, limit = [], NEVER
        group.append(one)
        limit = min(limit, taker)
    yield np.array(group)


def _fed_units(graph: ExecutionGraph, unit: np.ndarray) -> dict[int, int]:
    """Number of a call -> the first call that takes a tensor of it in its phase; NEVER: none later."""
    found: dict[int, int] = {}
    for node, ends in fed_by(graph).items():
        own, others = int(unit[node]), unit[ends]
        if own >= 0:
            later = others[others > own]
            found[own] = min(found.get(own, NEVER), int(later.min()) if len(later) else NEVER)
    return found


class _Takes:
    """What shapes the calls of a thread take, in order.

    Args:
        lane: rows of `call_table`.
    """

    def __init__(self, lane: pd.DataFrame) -> None:
        self.by_shape: dict[Shape, list[int]] = {}
        self.unshaped: list[int] = []
        for one, name, dims in zip(lane["unit"].tolist(), lane["op_name"], lane["input_dims"], strict=True):
            if str(name).rpartition("::")[2] in ALLOCATES:
                continue
            if not dims:
                self.unshaped.append(one)
            for shape in {shape for argument in parse(dims or "[]") for shape in tensors(argument)}:
                self.by_shape.setdefault(shape, []).append(one)

    def after(self, one: int, pattern: Shape | None) -> int:
        """The first call after `one` that may take its result; a call of unknown shapes may."""
        assert pattern is not None, "asked only where it is known"
        lists = [places for shape, places in self.by_shape.items() if may_be(shape, pattern)]
        found = [next((place for place in places if place > one), NEVER) for places in (*lists, self.unshaped)]
        return min(found, default=NEVER)
