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

import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from gnnperf.generate import Hold, Pair, RankTensors
from gnnperf.memory.planned import cuda_block_bytes, lives

MEBIBYTE = 1 << 20
SMALL_BYTES, LARGE_BYTES, LARGE_STEP_BYTES = 1 * MEBIBYTE, 10 * MEBIBYTE, 2 * MEBIBYTE
SMALL_SEGMENT_BYTES, MIDDLE_SEGMENT_BYTES = 2 * MEBIBYTE, 20 * MEBIBYTE
Counts = npt.NDArray[np.int64]


def most_reserved_bytes(tensors: RankTensors) -> int:
    """The upper end for one rank."""
    pairs = {id(each.pair): each.pair for each in tensors.stretches if not isinstance(each, Hold)}
    holds = {cuda_block_bytes(abs(each.num_bytes)) for each in tensors.stretches if isinstance(each, Hold)}
    sizes = sorted(holds | {size for pair in pairs.values() for size in _sizes(pair)})
    place = {size: i for i, size in enumerate(sizes)}
    profiles = {key: _profiles(pair, place) for key, pair in pairs.items()}
    there = np.zeros(len(sizes), dtype=np.int64)
    most = there.copy()
    for each in tensors.stretches:
        if isinstance(each, Hold):
            there[place[cuda_block_bytes(abs(each.num_bytes))]] += np.sign(each.num_bytes)
            most = np.maximum(most, there)
            continue
        rise, net = profiles[id(each.pair)][each.backward + each.of_weights]
        most = np.maximum(most, there + rise)
        there = there + net
    peaks = Counter(dict(zip(sizes, most.tolist(), strict=True)))
    always = (tensors.parameters_bytes, tensors.gradients_bytes, tensors.state_bytes, tensors.inputs_bytes,
              tensors.buckets_bytes)  # fmt: skip
    peaks.update(cuda_block_bytes(size) for kind in always for size in kind)
    return _segments(peaks)


def _segments(blocks: Counter[int]) -> int:
    """Bytes of the segments for so many blocks of each size."""
    small = sum(size * count for size, count in blocks.items() if size <= SMALL_BYTES)
    middle = sum(size * count for size, count in blocks.items() if SMALL_BYTES < size < LARGE_BYTES)
    large = sum(_up(size, LARGE_STEP_BYTES) * count for size, count in blocks.items() if size >= LARGE_BYTES)
    return _up(small, SMALL_SEGMENT_BYTES) + _up(middle, MIDDLE_SEGMENT_BYTES) + large


def _up(num_bytes: int, unit_bytes: int) -> int:
    return -(-num_bytes // unit_bytes) * unit_bytes


def _sizes(pair: Pair) -> Iterable[int]:
    """Sizes of the blocks of a pair."""
    uses = (*pair.forward, *pair.backward, *pair.weights)
    yield from (cuda_block_bytes(num_bytes) for num_bytes, _, _ in lives(pair))
    yield from (cuda_block_bytes(n) for each in uses for n in each.gradients_bytes)


def _profiles(pair: Pair, place: dict[int, int]) -> tuple[tuple[Counts, Counts], ...]:
    """Of each part of a pair [num_sizes] the most blocks above its begin, and what it leaves."""
    uses = (*pair.forward, *pair.backward, *pair.weights)
    change = np.zeros((2, len(uses), len(place)), dtype=np.int64)  # made at an op, gone after it
    for num_bytes, made, gone in lives(pair):
        if made is not None:
            change[0, made, place[cuda_block_bytes(num_bytes)]] += 1
        if gone is not None:
            change[1, gone, place[cuda_block_bytes(num_bytes)]] += 1
    for at, each in enumerate(uses):
        for num_bytes in each.gradients_bytes:
            change[0, at, place[cuda_block_bytes(num_bytes)]] += 1
    ends = np.cumsum([0, len(pair.forward), len(pair.backward), len(pair.weights)])
    return tuple(_rise(change[:, begin:end]) for begin, end in itertools.pairwise(ends))


def _rise(change: Counts) -> tuple[Counts, Counts]:
    if not change.shape[1]:
        nothing = np.zeros(change.shape[2], dtype=np.int64)
        return nothing, nothing
    made, gone = np.cumsum(change, axis=1)
    before = np.vstack([np.zeros(change.shape[2], dtype=np.int64), gone[:-1]])
    return (made - before).max(axis=0), made[-1] - gone[-1]
