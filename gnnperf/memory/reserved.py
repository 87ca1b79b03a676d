"""How much the caching allocator of CUDA reserves for a plan, at most: what `max_memory_reserved` may show.

`max_memory_allocated` counts blocks of 512 bytes. Blocks come from segments, and a freed segment stays with the
allocator. At worst no segment is used again for another size; then every size keeps its own largest number of blocks:

    allocated    the largest sum over all sizes at one time       lower end
    reserved     the sum over sizes of each one's largest number  upper end

Tensors above 10 MiB have segments of their own, in multiples of 2 MiB; smaller ones share segments of 20 and 2 MiB
(c10/cuda/CUDACachingAllocator.cpp: kMinLargeAlloc, kRoundLarge, kLargeBuffer, kSmallSize, kSmallBuffer). Before it runs
out of memory, the allocator frees segments that nothing uses, so that a step may still fit below the upper end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from gnnperf.generate import Hold, Pair, RankTensors
from gnnperf.memory.planned import cuda_block_bytes, lives, up_to, walked

MEBIBYTE = 1 << 20
SMALL_BYTES, LARGE_BYTES, LARGE_STEP_BYTES = 1 * MEBIBYTE, 10 * MEBIBYTE, 2 * MEBIBYTE
SMALL_SEGMENT_BYTES, MIDDLE_SEGMENT_BYTES = 2 * MEBIBYTE, 20 * MEBIBYTE
Counts = npt.NDArray[np.int64]


def most_reserved_bytes(tensors: RankTensors) -> int:
    """The upper end for one rank."""
    pairs = {id(each.pair): each.pair for each in tensors.stretches if not isinstance(each, Hold)}
    holds = {cuda_block_bytes(abs(each.num_bytes)) for each in tensors.stretches if isinstance(each, Hold)}
    sizes = sorted(holds | {size for pair in pairs.values() for size in _sizes(pair)})
    number = dict(zip(sizes, np.eye(len(sizes), dtype=np.int64), strict=True))  # of blocks of each size

    def counted(num_bytes: int, _: bool) -> Counts:
        return number.get(cuda_block_bytes(num_bytes), np.zeros(len(sizes), dtype=np.int64))

    def change_of(hold: Hold) -> Counts:
        return int(np.sign(hold.num_bytes)) * number[cuda_block_bytes(abs(hold.num_bytes))]

    most = np.zeros(len(sizes), dtype=np.int64)
    for there, course in walked(tensors, counted, change_of):
        if course.ops:
            most = np.maximum(most, there + course.during.max(axis=0))
    peaks = Counter(dict(zip(sizes, most.tolist(), strict=True)))
    always = (tensors.parameters_bytes, tensors.gradients_bytes, tensors.state_bytes, tensors.inputs_bytes,
              tensors.buckets_bytes)  # fmt: skip
    peaks.update(cuda_block_bytes(size) for kind in always for size in kind)
    small = sum(size * count for size, count in peaks.items() if size <= SMALL_BYTES)
    middle = sum(size * count for size, count in peaks.items() if SMALL_BYTES < size < LARGE_BYTES)
    large = sum(up_to(size, LARGE_STEP_BYTES) * count for size, count in peaks.items() if size >= LARGE_BYTES)
    return up_to(small, SMALL_SEGMENT_BYTES) + up_to(middle, MIDDLE_SEGMENT_BYTES) + large


def _sizes(pair: Pair) -> Iterable[int]:
    """Sizes of the blocks of a pair."""
    uses = (*pair.forward, *pair.backward, *pair.weights)
    yield from (cuda_block_bytes(num_bytes) for num_bytes, _, _ in lives(pair))
    yield from (cuda_block_bytes(n) for each in uses for n in each.gradients_bytes)
