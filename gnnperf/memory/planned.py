"""Peak memory of plans: what is held all the time, and the most that a step piles up on it. No torch."""

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gnnperf.generate import LEAVES, HeldFor, Hold, Pair, RankTensors
from gnnperf.memory.measured_memory import Part, PeakMemory, Timeline

# How much more than requested an allocator hands out.

CPU_ALIGNMENT_BYTES = 64  # c10/core/alignment.h: gAlignment
CUDA_BLOCK_BYTES = 512  # c10/cuda/CUDACachingAllocator: kMinBlockSize


def cpu_block_bytes(requested_bytes: int) -> int:
    """What torch's CPU allocator takes: blocks begin at multiples of 64 bytes."""
    return up_to(requested_bytes, CPU_ALIGNMENT_BYTES)


def cuda_block_bytes(requested_bytes: int) -> int:
    """What `max_memory_allocated` counts for a tensor: multiples of 512 bytes (`round_size`, without divisions)."""
    return up_to(requested_bytes, CUDA_BLOCK_BYTES)


def up_to(num_bytes: int, unit_bytes: int) -> int:
    """Rounded up to whole units."""
    return -(-num_bytes // unit_bytes) * unit_bytes


# How much memory a stretch of a planned program takes at each op, forward and backward, on top of what was there.
#
# forward    norm1 made | qkv made | scores made | probabilities made, scores gone | ...     rise, op by op
# end        what the backward takes again is still there                                    net

# Columns: bytes of activations, of gradients that stay, all as handed out; between stretches also of whole parameters
# and of messages.
ASKED, KEPT, BLOCKS, GATHERED, SENT = range(5)
Sizes = npt.NDArray[np.int64]
Life = tuple[int, int | None, int | None]  # bytes, op that makes it, op after which it goes; None: a neighbor does it
Counted = Callable[[int, bool], Sizes]  # bytes of a tensor, whether it is a gradient that stays -> [columns]


@dataclass(frozen=True)
class Course:
    """What is there over one direction of a pair, or after a change between stretches, above what was there before."""

    ops: tuple[str, ...]  # names
    during: Sizes  # [num_ops, columns] while each runs: what it takes and what it makes are there together
    net: Sizes  # [columns] what is left

    @cached_property
    def highest(self) -> int:
        """The op at which most blocks are there."""
        return int(np.argmax(self.during[:, BLOCKS]))


def in_blocks(block_bytes: Callable[[int], int]) -> Counted:
    """Columns of a tensor, as above."""

    def counted(num_bytes: int, stays: bool) -> Sizes:
        return np.array([0 if stays else num_bytes, num_bytes if stays else 0, block_bytes(num_bytes), 0, 0])

    return counted


def courses(pair: Pair, counted: Counted) -> tuple[Course, ...]:
    """Forward and backward of a pair, and the second part of a backward pass that has two."""
    uses = (*pair.forward, *pair.backward, *pair.weights)
    change = np.zeros((2, len(uses), len(counted(0, False))), dtype=np.int64)  # made at an op, gone after it
    for num_bytes, made, gone in lives(pair):
        size = counted(num_bytes, False)
        if made is not None:
            change[0, made] += size
        if gone is not None:
            change[1, gone] += size
    for place, each in enumerate(uses):
        for num_bytes in each.gradients_bytes:
            change[0, place] += counted(num_bytes, True)
    ends = np.cumsum([0, len(pair.forward), len(pair.backward), len(pair.weights)])
    result = []
    for a, b in itertools.pairwise(ends):
        own = change[:, a:b]
        made, gone = np.cumsum(own, axis=1)  # [num_ops, columns] each
        net = own[0].sum(axis=0) - own[1].sum(axis=0)
        result.append(Course(tuple(use.op for use in uses[a:b]), made - (gone - own[1]), net))
    return tuple(result)


def walked(
    tensors: RankTensors, counted: Counted, change_of: Callable[[Hold], Sizes]
) -> Iterator[tuple[Sizes, Course]]:  # fmt: skip
    """What is there before each stretch and change of a step [columns], and its course."""
    known: dict[int, tuple[Course, ...]] = {}  # a plan repeats few pairs many times
    there = np.zeros(len(counted(0, False)), dtype=np.int64)
    for each in tensors.stretches:
        if isinstance(each, Hold):
            change = change_of(each)
            course = Course((each.op,), change[None, :], change)
        else:
            if id(each.pair) not in known:
                known[id(each.pair)] = courses(each.pair, counted)
            course = known[id(each.pair)][each.backward + each.of_weights]
        yield there, course
        there = there + course.net


def lives(pair: Pair) -> Iterable[Life]:
    """Of every tensor. Ops are numbered through forward, backward and the second part of a backward pass."""
    uses, border = (*pair.forward, *pair.backward, *pair.weights), len(pair.forward)
    open_: dict[str, Life] = {name: (num_bytes, None, None) for name, num_bytes in pair.enters.items()}
    for place, each in enumerate(uses):
        for name in each.takes:
            num_bytes, made, _ = open_[name]
            open_[name] = (num_bytes, made, place)
        for name, num_bytes in each.makes:
            if name in open_:
                yield _closed(name, open_.pop(name), border)
            open_[name] = (num_bytes, place, None)
    for name, life in open_.items():
        yield _closed(name, life, border)


def _closed(name: str, life: Life, border: int) -> Life:
    """A tensor that no op takes goes where it was made; what leaves stays for a neighbor."""
    num_bytes, made, last = life
    assert made is not None or last is not None, f"no op takes {name}"
    backward = made is not None and made >= border
    leaves = made is not None and name == LEAVES[backward]
    return num_bytes, made, None if leaves else made if last is None else last


STEP_NAME = "planned"
COLUMN = {HeldFor.ACTIVATIONS: ASKED, HeldFor.GRADIENTS: KEPT, HeldFor.GATHERED: GATHERED, HeldFor.TEMPORARY: SENT}


def planned_peak(tensors: RankTensors) -> PeakMemory:
    """The peak of one rank of a plan, in blocks as CUDA's allocator hands them out (`max_memory_allocated`)."""
    always = {
        Part.PARAMETERS: tensors.parameters_bytes, Part.OPTIMIZER_STATE: tensors.state_bytes,
        Part.INPUTS: tensors.inputs_bytes, Part.GRADIENTS: tensors.gradients_bytes,
    }  # fmt: skip
    most = left = np.zeros(5, dtype=np.int64)  # on top of what is always there; what the step's end leaves
    at = ""
    for there, course in walked(tensors, in_blocks(cuda_block_bytes), change_of):
        left = there + course.net
        if course.ops and there[BLOCKS] + course.during[course.highest, BLOCKS] > most[BLOCKS]:
            most, at = there + course.during[course.highest], course.ops[course.highest]
    assert not left[[ASKED, GATHERED, SENT]].any(), "a tensor that is never released"
    held = {part: sum(sizes) for part, sizes in always.items()}
    parts = {**held, Part.GRADIENTS: held[Part.GRADIENTS] + int(most[KEPT]), Part.ACTIVATIONS: int(most[ASKED]),
             Part.GATHERED: int(most[GATHERED]), Part.TEMPORARY: int(most[SENT])}  # fmt: skip
    buckets = sum(map(cuda_block_bytes, tensors.buckets_bytes))
    blocks = sum(cuda_block_bytes(size) for sizes in always.values() for size in sizes) + int(most[BLOCKS])
    rounding = blocks - sum(parts.values())
    return PeakMemory(
        tensors.rank, STEP_NAME, {**{p: parts[p] for p in Part if parts.get(p)}, Part.ROUNDING: rounding}, at,
        sum(held.values()) + int(left[KEPT]) + buckets, 0, buckets, tensors.assumed,
    )  # fmt: skip


def change_of(hold: Hold) -> Sizes:
    """[5] what comes or goes."""
    change = np.zeros(5, dtype=np.int64)
    change[COLUMN[hold.held_for]] = hold.num_bytes
    change[BLOCKS] = cuda_block_bytes(hold.num_bytes) if hold.num_bytes > 0 else -cuda_block_bytes(-hold.num_bytes)
    return change


# How much the caching allocator of CUDA reserves for a plan, at most: what `max_memory_reserved` may show.
#
# `max_memory_allocated` counts blocks of 512 bytes. Blocks come from segments, and a freed segment stays with the
# allocator. At worst no segment is used again for another size; then every size keeps its own largest number of blocks:
#
#     allocated    the largest sum over all sizes at one time       lower end
#     reserved     the sum over sizes of each one's largest number  upper end
#
# Tensors above 10 MiB have segments of their own, in multiples of 2 MiB; smaller ones share segments of 20 and 2 MiB
# (c10/cuda/CUDACachingAllocator.cpp: kMinLargeAlloc, kRoundLarge, kLargeBuffer, kSmallSize, kSmallBuffer). Before it
# runs out of memory, the allocator frees segments that nothing uses, so a step may still fit below the upper end.

MEBIBYTE = 1 << 20
SMALL_BYTES, LARGE_BYTES, LARGE_STEP_BYTES = 1 * MEBIBYTE, 10 * MEBIBYTE, 2 * MEBIBYTE
SMALL_SEGMENT_BYTES, MIDDLE_SEGMENT_BYTES = 2 * MEBIBYTE, 20 * MEBIBYTE


def most_reserved_bytes(tensors: RankTensors) -> int:
    """The upper end for one rank."""
    pairs = {id(each.pair): each.pair for each in tensors.stretches if not isinstance(each, Hold)}
    holds = {cuda_block_bytes(abs(each.num_bytes)) for each in tensors.stretches if isinstance(each, Hold)}
    sizes = sorted(holds | {size for pair in pairs.values() for size in _sizes(pair)})
    number = dict(zip(sizes, np.eye(len(sizes), dtype=np.int64), strict=True))  # of blocks of each size

    def counted(num_bytes: int, _: bool) -> Sizes:
        return number.get(cuda_block_bytes(num_bytes), np.zeros(len(sizes), dtype=np.int64))

    def changed(hold: Hold) -> Sizes:
        return int(np.sign(hold.num_bytes)) * number[cuda_block_bytes(abs(hold.num_bytes))]

    most = np.zeros(len(sizes), dtype=np.int64)
    for there, course in walked(tensors, counted, changed):
        if course.ops:
            most = np.maximum(most, there + course.during.max(axis=0))
    peaks = Counter(dict(zip(sizes, most.tolist(), strict=True)))
    always = (*tensors.parameters_bytes, *tensors.gradients_bytes, *tensors.state_bytes, *tensors.inputs_bytes)
    peaks.update(map(cuda_block_bytes, (*always, *tensors.buckets_bytes)))
    small = sum(size * count for size, count in peaks.items() if size <= SMALL_BYTES)
    middle = sum(size * count for size, count in peaks.items() if SMALL_BYTES < size < LARGE_BYTES)
    large = sum(up_to(size, LARGE_STEP_BYTES) * count for size, count in peaks.items() if size >= LARGE_BYTES)
    return up_to(small, SMALL_SEGMENT_BYTES) + up_to(middle, MIDDLE_SEGMENT_BYTES) + large


def _sizes(pair: Pair) -> Iterable[int]:
    """Sizes of the blocks of a pair."""
    uses = (*pair.forward, *pair.backward, *pair.weights)
    yield from (cuda_block_bytes(num_bytes) for num_bytes, _, _ in lives(pair))
    yield from (cuda_block_bytes(n) for each in uses for n in each.gradients_bytes)


# What a rank holds over the time of a step, part by part: where the peak comes from and how long it lasts.

MOST_POINTS = 400  # of a timeline: a picture is not wider
PARTS = {ASKED: Part.ACTIVATIONS, KEPT: Part.GRADIENTS, GATHERED: Part.GATHERED, SENT: Part.TEMPORARY}


def timeline(time_us: npt.NDArray[np.float64], parts_bytes: Mapping[Part, Sizes]) -> Timeline:
    """Of many points [n], ascending, those with most in their stretch of time; parts that hold nothing are left out."""
    known = {part: levels for part, levels in parts_bytes.items() if levels.any()}
    if not len(time_us) or not known:
        return Timeline((), {})
    chosen = np.arange(len(time_us))
    if len(time_us) > MOST_POINTS:
        span = max(float(time_us[-1] - time_us[0]), 1e-9)
        bins = np.minimum(((time_us - time_us[0]) / span * MOST_POINTS).astype(np.int64), MOST_POINTS - 1)
        order = np.lexsort((np.sum(list(known.values()), axis=0), bins))
        chosen = np.sort(order[np.append(np.flatnonzero(np.diff(bins[order])), len(order) - 1)])  # the largest of each
    parts = {part: tuple(levels[chosen].tolist()) for part, levels in known.items()}
    return Timeline(tuple(time_us[chosen].tolist()), parts)


# A plan's ops in order, and when the schedule runs them.


def planned_timeline(tensors: RankTensors, ops: Sequence[str], start_us: Sequence[float]) -> Timeline:
    """Of one rank of a plan, whose kernels `ops`, in order of the program, begin at `start_us`."""
    walk = list(walked(tensors, in_blocks(cuda_block_bytes), change_of))
    uses = [op for _, course in walk for op in course.ops]
    levels = np.concatenate([there + course.during for there, course in walk] or [np.zeros((0, 5), dtype=np.int64)])
    time_us = np.maximum.accumulate(np.array(_times(uses, ops, start_us)))
    parts = {part: levels[:, column].copy() for column, part in PARTS.items()}
    always = {Part.PARAMETERS: tensors.parameters_bytes, Part.OPTIMIZER_STATE: tensors.state_bytes,
              Part.INPUTS: tensors.inputs_bytes}  # fmt: skip
    parts[Part.GRADIENTS] += sum(tensors.gradients_bytes) + sum(tensors.buckets_bytes)
    for part, sizes in always.items():
        parts[part] = np.full(len(levels), sum(sizes), dtype=np.int64)
    return timeline(time_us, {part: parts[part] for part in Part if part in parts})


def _times(uses: Sequence[str], ops: Sequence[str], start_us: Sequence[float]) -> list[float]:
    """When each use runs: at the next kernel of its name; what is no kernel, when the one before it does."""
    places: dict[str, list[int]] = {}
    for place, op in enumerate(ops):
        places.setdefault(op, []).append(place)
    at, now, result = 0, 0.0, []
    for use in uses:
        own = places.get(use, [])
        number = bisect_left(own, at)
        if number < len(own):
            at, now = own[number] + 1, start_us[own[number]]
        result.append(now)
    return result
