"""Contention: what work that runs at one moment takes from other work, in the numbers of one cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

UNLIMITED = math.inf
TIME_SLICE_US = 1000.0  # about what a thread runs before another one gets its core (Linux: 0.75 to 3 ms)


@dataclass(frozen=True)
class Bucket:
    """The token bucket that limits a line between machines: what it holds passes at once, the rest at the limit."""

    size_bytes: float  # of tokens that a full bucket holds
    limit_bytes_per_s: float  # at which tokens come
    at_once_bytes_per_s: float  # at which bytes pass that have tokens

    @property
    def full_us(self) -> float:
        """Time in which an empty bucket is full again: what a full one is worth on the line."""
        return self.size_bytes / self.limit_bytes_per_s * 1e6

    @property
    def spared_share(self) -> float:
        """Of the time at the limit that bytes with tokens do not take."""
        return 1.0 - min(self.limit_bytes_per_s / self.at_once_bytes_per_s, 1.0)


@dataclass(frozen=True)
class Contention:
    """What overlapping work shares. With unlimited cores and links of their own, nothing is shared."""

    ranks_per_node: int = 1  # ranks that share a node; a group within one node crosses the inner link
    # ranks that share one link in a node; 0: transfers over it do not share (loopback: the cores are the limit, not a
    # line)
    ranks_per_inner_link: int = 0
    ranks_per_outer_link: int = 0  # the same of the links between nodes
    # processor cores that the threads of a node share; unlimited where work runs on a GPU
    cores_per_node: float = UNLIMITED
    # per rank the cores it is bound to, where they are known; else a node's ranks share all of its cores
    core_sets: tuple[tuple[int, ...], ...] = ()
    # bytes of messages that one core moves per second over a link in a node; unlimited where no core takes part
    inner_core_bytes_per_s: float = UNLIMITED
    outer_core_bytes_per_s: float = UNLIMITED  # the same between nodes
    # what limits each outer link, where a token bucket does; None: nothing passes at once
    outer_bucket: Bucket | None = None

    def usual_stretch(self, moves: np.ndarray, latency_us: np.ndarray, stretch: np.ndarray) -> np.ndarray:
        """[n] how much longer nodes usually take next to other work; `stretch` [n] is how much longer on average.

        Threads that share a core take turns. A node much shorter than a turn mostly meets none, and once in a while
        waits for a whole one: its mean is stretched, and what it usually takes is not. `moves` [n]: transfers, which
        advance packet by packet, and kernels on a GPU share it at every moment: they are stretched as their means are.
        A transfer that finds tokens in its lines' buckets has a stretch below 1.
        """
        if self.cores_per_node == UNLIMITED:
            return stretch
        turns = np.where(moves, 1.0, latency_us / (latency_us + TIME_SLICE_US))  # [n]
        return np.asarray(stretch**turns)

    def pools(self, ranks: Sequence[int]) -> tuple[list[int], list[float]]:
        """(pool of each of `ranks`, cores of each pool): who shares processor cores with whom."""
        if self.cores_per_node == UNLIMITED:
            return list(range(len(ranks))), [UNLIMITED] * len(ranks)
        if self.core_sets and max(ranks) < len(self.core_sets):
            return _joined([frozenset(self.core_sets[rank]) for rank in ranks])
        nodes = sorted({rank // self.ranks_per_node for rank in ranks})
        return [nodes.index(rank // self.ranks_per_node) for rank in ranks], [self.cores_per_node] * len(nodes)


def _joined(sets: Sequence[frozenset[int]]) -> tuple[list[int], list[float]]:
    """Pools of ranks whose sets of cores overlap, directly or through others."""
    pools: list[frozenset[int]] = []
    for cores in sets:
        apart = [pool for pool in pools if not pool & cores]
        pools = [*apart, cores.union(*(pool for pool in pools if pool & cores))]
    of_rank = [next(i for i, pool in enumerate(pools) if cores <= pool) for cores in sets]
    return of_rank, [float(len(pool)) for pool in pools]
