"""Peak memory of plans: what is held all the time, and the most that a step piles up on it. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnperf.generate import LEAVES, HeldFor, Hold, Pair, RankTensors, Use
from gnnperf.memory.measured import Part, PeakMemory

# How much more than requested an allocator hands out.

CPU_ALIGNMENT_BYTES = 64  # c10/core/alignment.h: gAlignment
CUDA_BLOCK_BYTES = 512  # c10/cuda/CUDACachingAllocator: kMinBlockSize


def cpu_block_bytes(requested_bytes: int) -> int:
    """What torch's CPU allocator takes: blocks begin at multiples of 64 bytes."""
    return _up(requested_bytes, CPU_ALIGNMENT_BYTES)


def cuda_block_bytes(requested_bytes: int) -> int:
    """What `max_memory_allocated` counts for a tensor: multiples of 512 bytes (`round_size`, without divisions)."""
    return _up(requested_bytes, CUDA_BLOCK_BYTES)


def _up(num_bytes: int, unit_bytes: int) -> int:
    return -(-num_bytes // unit_bytes) * unit_bytes


# How much memory a stretch of a planned program takes at each op, forward and backward, on top of what was there.
#
# forward    norm1 made | qkv made | scores made | probabilities made, scores gone | ...     rise, op by op
# end        what the backward takes again is still there                                    net

# Columns: bytes of activations, of gradients that stay, all as handed out; between stretches also of whole parameters
# and of messages.
ASKED, KEPT, BLOCKS, GATHERED, SENT = range(5)
NUM_OF_OPS = 3  # columns that ops of stretches change
Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Profile:
    """One direction of a pair.

    Attributes:
        most: [3] at the op where most is there, relative to the stretch's begin.
        at: that op.
        net: [3] what the stretch leaves, less what it takes away.
    """

    most: Sizes
    at: str
    net: Sizes


def profiles(pair: Pair, block_bytes: Callable[[int], int]) -> tuple[Profile, ...]:
    """Forward and backward of a pair, and the second part of a backward pass that has two."""
    uses, border = (*pair.forward, *pair.backward, *pair.weights), len(pair.forward)
    change = np.zeros((2, len(uses), 3), dtype=np.int64)  # made at an op, gone after it
    for num_bytes, made, gone in lives(pair):
        size = np.array([num_bytes, 0, block_bytes(num_bytes)])
        if made is not None:
            change[0, made] += size
        if gone is not None:
            change[1, gone] += size
    for place, each in enumerate(uses):
        for num_bytes in each.gradients_bytes:
            change[0, place] += [0, num_bytes, block_bytes(num_bytes)]
    ends = [0, border, border + len(pair.backward), *([len(uses)] if pair.weights else [])]
    return tuple(_profile(uses[a:b], change[:, a:b]) for a, b in itertools.pairwise(ends))


def lives(pair: Pair) -> Iterable[tuple[int, int | None, int | None]]:
    """(bytes, op that makes it, op after which it is gone) of every tensor; None: a neighbor does it.

    Ops are numbered through forward, backward and the second part of a backward pass.
    """
    uses, border = (*pair.forward, *pair.backward, *pair.weights), len(pair.forward)
    open_: dict[str, tuple[int, int | None, int | None]] = {
        name: (num_bytes, None, None) for name, num_bytes in pair.enters.items()
    }
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


def _closed(name: str, life: tuple[int, int | None, int | None], border: int) -> tuple[int, int | None, int | None]:
    """A tensor that no op takes goes where it was made; what leaves stays for a neighbor."""
    num_bytes, made, last = life
    assert made is not None or last is not None, f"no op takes {name}"
    backward = made is not None and made >= border
    leaves = made is not None and name == LEAVES[backward]
    return num_bytes, made, None if leaves else made if last is None else last


def _profile(uses: Sequence[Use], change: Sizes) -> Profile:
    nothing = np.zeros(3, dtype=np.int64)
    if not uses:
        return Profile(nothing, "", nothing)
    made, gone = np.cumsum(change, axis=1)  # [num_ops, 3] each
    there = made - np.vstack([nothing, gone[:-1]])  # while an op runs, what it takes and makes are there together
    most = int(np.argmax(there[:, BLOCKS]))
    return Profile(there[most], uses[most].op, made[-1] - gone[-1])


STEP_NAME = "planned"


COLUMN = {
    HeldFor.ACTIVATIONS: ASKED, HeldFor.GRADIENTS: KEPT, HeldFor.GATHERED: GATHERED, HeldFor.TEMPORARY: SENT,
}  # fmt: skip


def planned_peak(tensors: RankTensors) -> PeakMemory:
    """The peak of one rank of a plan, in blocks as CUDA's allocator hands them out (`max_memory_allocated`)."""
    always = {
        Part.PARAMETERS: tensors.parameters_bytes, Part.OPTIMIZER_STATE: tensors.state_bytes,
        Part.INPUTS: tensors.inputs_bytes, Part.GRADIENTS: tensors.gradients_bytes,
    }  # fmt: skip
    most, at, left = _most(tensors)
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


def _most(tensors: RankTensors) -> tuple[Sizes, str, Sizes]:
    """[5] the most on top of what is always there, its op, and [5] what the step's end leaves."""
    known: dict[int, tuple[Profile, ...]] = {}
    there = np.zeros(5, dtype=np.int64)
    most, at = there, ""
    for each in tensors.stretches:
        if isinstance(each, Hold):
            there = there + change_of(each)
            if there[BLOCKS] > most[BLOCKS]:
                most, at = there, each.op
            continue
        if id(each.pair) not in known:  # a plan repeats few pairs many times
            known[id(each.pair)] = profiles(each.pair, cuda_block_bytes)
        profile = known[id(each.pair)][each.backward + each.of_weights]
        if there[BLOCKS] + profile.most[BLOCKS] > most[BLOCKS]:
            most, at = there + _widened(profile.most), profile.at
        there = there + _widened(profile.net)
    assert not there[[ASKED, GATHERED, SENT]].any(), "a tensor that is never released"
    return most, at, there


def change_of(hold: Hold) -> Sizes:
    """[5] what comes or goes."""
    change = np.zeros(5, dtype=np.int64)
    change[COLUMN[hold.held_for]] = hold.num_bytes
    change[BLOCKS] = cuda_block_bytes(hold.num_bytes) if hold.num_bytes > 0 else -cuda_block_bytes(-hold.num_bytes)
    return change


def _widened(of_ops: Sizes) -> Sizes:
    """[5] of [3]."""
    return np.concatenate([of_ops, np.zeros(5 - NUM_OF_OPS, dtype=np.int64)])
