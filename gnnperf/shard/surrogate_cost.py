"""A step's time from sums over tables, cheap enough to ask for each of thousands of placements.

    step = exchange of indices + max over ranks of lookups + max(exchange of vectors, bottom perceptron) + rest
         + max(exchange of gradients, backward of the bottom perceptron) + max over ranks of updates + replicated tables

Every collective waits for the last rank, so maxima over ranks add up. Hosts, launches and gaps are left out: they
hardly depend on the placement; so is the addition of partial sums. What is found this way is judged by the schedule
(`gnnperf.shard.shard_result`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf import generate
from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType
from gnnperf.generate import FLOAT_BYTES, INDEX_BYTES, Op, Placed, Placement, even_bytes
from gnnperf.graph import node_table
from gnnperf.hardware import ClusterSpec
from gnnperf.shard.problem import (
    ARRANGE,
    DENSE,
    ELEMENTS,
    INDICES,
    LOOKED_UP,
    MEMORY,
    REPLICATED,
    SUMMED,
    UPDATED,
    US,
    Load,
    Loads,
    Problem,
    all_loads,
    kernels_us,
)

KINDS = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
SMALLEST_BYTES, LARGEST_BYTES, SIZES = 1.0, 1e13, 400  # messages that are priced; others lie between them
Value = tuple[float, float]  # step in us (infinite: does not fit), then how unevenly ranks are loaded


@dataclass(frozen=True)
class State:
    """A placement and its sums."""

    placement: Placement  # of all tables
    per_rank: np.ndarray  # [6, ranks] see gnnperf.shard.problem
    shared: np.ndarray  # [3]


@dataclass(frozen=True)
class Surrogate:
    """What placements of one problem cost."""

    problem: Problem  # requested
    loads: Loads  # of its tables
    sizes_bytes: np.ndarray  # [sizes] messages
    times_us: Mapping[str, np.ndarray]  # kind of collective -> [sizes] us
    # bottom_us, bottom_backward_us, rest_us: of replicated kernels
    bottom_us: float
    bottom_backward_us: float
    rest_us: float

    def start(self, placement: Placement) -> State:
        """The sums of a placement."""
        state = State(placement, np.zeros((6, self.problem.ranks)), np.zeros(3))
        for table, placed in enumerate(placement):
            _add(state, self.loads.of(table, placed), placed, 1.0)
        return state

    def changed(self, state: State, changes: Mapping[int, Placed]) -> State:
        """The state with other places for some tables."""
        placement = list(state.placement)
        for table, placed in changes.items():
            placement[table] = placed
        result = State(tuple(placement), state.per_rank.copy(), state.shared.copy())
        for table, placed in changes.items():
            before = state.placement[table]
            _add(result, self.loads.of(table, before), before, -1.0)
            _add(result, self.loads.of(table, placed), placed, 1.0)
        return result

    def value(self, state: State) -> Value:
        """Smaller is better."""
        if state.per_rank[MEMORY].max() > self.problem.capacity_bytes:
            return np.inf, np.inf
        work = state.per_rank[LOOKED_UP] + state.per_rank[ARRANGE] + state.per_rank[UPDATED]  # [ranks]
        rows = work, state.per_rank[ELEMENTS]
        uneven = sum(float(np.square(row / max(row.mean(), 1e-9)).mean()) for row in rows)
        return self.step_us(state), uneven

    def step_us(self, state: State) -> float:
        """Of a placement that fits."""
        plan, per_rank, shared = self.problem.plan, state.per_rank, state.shared
        requested, elements = per_rank[INDICES], per_rank[ELEMENTS]
        index = self.collective_us("all_to_all", even_bytes(requested, plan.samples, INDEX_BYTES).max())
        vectors = self.collective_us("all_to_all", even_bytes(elements, plan.samples, FLOAT_BYTES).max())
        summed = float(shared[SUMMED]) * FLOAT_BYTES
        ahead = vectors + self.collective_us("reduce_scatter", plan.batch * summed)
        back = vectors + self.collective_us("all_gather", plan.samples * summed)
        result = index + (per_rank[ARRANGE] + per_rank[LOOKED_UP]).max() + max(ahead, self.bottom_us) + self.rest_us
        result += max(back, self.bottom_backward_us) + per_rank[UPDATED].max()
        # Dense gradients of replicated tables, their sum over ranks, and the optimizer's pass over them.
        device, parameters = self.problem.cluster.device, shared[REPLICATED] / FLOAT_BYTES
        bandwidth = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share
        optimizer = parameters * generate.update_bytes_per_parameter(plan.model.optimizer) / bandwidth * US
        replicated = float(shared[DENSE] + optimizer) + self.collective_us("all_reduce", float(shared[REPLICATED]))
        return float(result) + replicated

    def collective_us(self, kind: str, message_bytes: float) -> float:
        """Of all ranks; none without bytes."""
        if message_bytes <= 0.0 or self.problem.ranks == 1:
            return 0.0
        return float(np.interp(message_bytes, self.sizes_bytes, self.times_us[kind]))


def _add(state: State, load: Load, placed: Placed, sign: float) -> None:
    state.per_rank[:, list(placed.ranks)] += sign * load.per_rank[:, None]
    state.shared[:] += sign * load.shared


def surrogate(problem: Problem) -> Surrogate:
    """Everything priced once, by the analytical model."""
    shared = generate.shared_by_all(problem.plan)
    programs = (shared.bottom, shared.bottom_backward, (*shared.rest, *shared.update))
    sizes = np.geomspace(SMALLEST_BYTES, LARGEST_BYTES, SIZES)
    ops = ([line for line in lines if isinstance(line, Op)] for lines in programs)
    us = [float(kernels_us(problem.cluster, own).sum()) for own in ops]
    times = {kind: collectives_us(problem.cluster, problem.ranks, kind, sizes) for kind in KINDS}
    return Surrogate(problem, all_loads(problem), sizes, times, *us)


def collectives_us(cluster: ClusterSpec, ranks: int, kind: str, sizes: np.ndarray) -> np.ndarray:
    """[n] us of a kind over all ranks, by message [n] bytes."""
    nodes = node_table(len(sizes), node_type=str(NodeType.COLLECTIVE), collective=kind, message_bytes=sizes,
                       group_size=ranks)  # fmt: skip
    return AnalyticPredictor().latency_us(nodes, cluster)
