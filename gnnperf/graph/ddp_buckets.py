"""Where DDP waits for its buckets of gradients.

main    |AccumulateGrad: c10d::allreduce_| more backward ... | T1 ·waiting·| as_strided | T1 ·waiting·| as_strided
worker                     |------ gloo:all_reduce ------------------------|
worker                                  |------------- gloo:all_reduce ---------------------------|
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import Segment
from gnnperf.graph.event_columns import RankEvents, by_category
from gnnperf.graph.host import Pieces


class Buckets:
    """DDP waits when backward ends, bucket after bucket, and unpacks each as soon as it is there.

    A bucket of n elements is awaited before the first `aten::as_strided [[n], ...]` of those that unpack it.

    Args:
        events, pieces: of one rank. Buckets are asked for in the order in which they were issued.
    """

    def __init__(self, events: RankEvents, pieces: Pieces) -> None:
        self._dims = events.column("input_dims")
        self._t1 = np.flatnonzero(pieces.segment == Segment.T1)
        self._leaves = self._t1[_leaves_backward(events, pieces, self._t1)]
        self._views = _unpacking(events, pieces, self._t1, self._dims)
        self._taken: dict[str, int] = {}  # the last place where a bucket of these dims is unpacked

    def place(self, work_event: int, issuer: int) -> np.ndarray:
        """The gap that waits for a bucket."""
        left = _next(self._leaves, issuer)
        if left is None:
            return np.zeros(0, dtype=np.int64)
        bucket = _bucket(self._dims[work_event])
        views = self._views.get(bucket, self._leaves[:0])
        place = _next(views, max(left, self._taken.get(bucket, -1) + 1))
        if place is not None:
            self._taken[bucket] = place
        return np.array([left if place is None else place])


def _next(positions: np.ndarray, at_least: int) -> int | None:
    """The first position not before `at_least`."""
    slot = int(np.searchsorted(positions, at_least))
    return int(positions[slot]) if slot < len(positions) else None


def _unpacking(events: RankEvents, pieces: Pieces, t1: np.ndarray, dims: np.ndarray) -> dict[str, np.ndarray]:
    """Bucket -> gaps before unpacking one of its size begins: the first of consecutive views into it."""
    op = pieces.op[t1]
    views = np.flatnonzero((op >= 0) & (events.name[op] == "aten::as_strided"))
    bucket = np.array([_bucket(d) for d in dims[op[views]].tolist()], dtype=object)
    begins = np.ones(len(views), dtype=bool)
    begins[1:] = (views[1:] != views[:-1] + 1) | (bucket[1:] != bucket[:-1])
    return {str(b): t1[views[begins & (bucket == b)]] for b in set(bucket.tolist())}


def _bucket(dims: str | None) -> str:
    """`[[n]` of the shapes of a collective of n elements, `[[n]]`, and of a view into it, `[[n],[],[]]`."""
    return str(dims).split("]")[0] + "]"


def _leaves_backward(events: RankEvents, pieces: Pieces, t1: np.ndarray) -> np.ndarray:
    """[num_t1] bool: the piece before belongs to autograd, the piece after does not."""
    engine = by_category(events.table.events["name"], lambda n: n.startswith("autograd::engine"), bool)
    owner = np.where(pieces.op >= 0, pieces.op, 0)
    scope, inside = owner.copy(), np.zeros(len(owner), dtype=bool)
    for _ in range(16):
        inside |= (scope >= 0) & engine[scope]
        scope = np.where(scope >= 0, events.parent[scope], -1)
    inside &= pieces.op >= 0
    previous = np.maximum(t1 - 1, 0)
    return inside[previous] & ~inside[t1]
