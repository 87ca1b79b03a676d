"""Peak memory of plans: what is held all the time, and the most that a step piles up on it. No torch."""

from __future__ import annotations

import numpy as np

from gnnperf.generate import RankTensors
from gnnperf.memory.peak import Part, PeakMemory
from gnnperf.memory.rounding import cuda_block_bytes
from gnnperf.memory.stretches import ASKED, BLOCKS, KEPT, Profile, profiles

STEP_NAME = "planned"


def planned_peak(tensors: RankTensors) -> PeakMemory:
    """The peak of one rank of a plan, in blocks as CUDA's allocator hands them out (`max_memory_allocated`)."""
    always = {
        Part.PARAMETERS: tensors.parameters_bytes, Part.OPTIMIZER_STATE: tensors.state_bytes,
        Part.INPUTS: tensors.inputs_bytes, Part.GRADIENTS: tensors.gradients_bytes,
    }  # fmt: skip
    most, at, left = _most(tensors)
    held = {part: sum(sizes) for part, sizes in always.items()}
    parts = {**held, Part.GRADIENTS: held[Part.GRADIENTS] + int(most[KEPT]), Part.ACTIVATIONS: int(most[ASKED])}
    buckets = sum(map(cuda_block_bytes, tensors.buckets_bytes))
    blocks = sum(cuda_block_bytes(size) for sizes in always.values() for size in sizes) + int(most[BLOCKS])
    rounding = blocks - sum(parts.values())
    return PeakMemory(
        tensors.rank, STEP_NAME, {**{p: parts[p] for p in Part if parts.get(p)}, Part.ROUNDING: rounding}, at,
        sum(held.values()) + int(left[KEPT]) + buckets, 0, buckets, tensors.assumed,
    )  # fmt: skip


def _most(tensors: RankTensors) -> tuple[np.ndarray, str, np.ndarray]:
    """[3] the most on top of what is always there, its op, and [3] what the step's end leaves."""
    known: dict[int, tuple[Profile, Profile]] = {}
    there = np.zeros(3, dtype=np.int64)
    most, at = there, ""
    for stretch in tensors.stretches:
        if id(stretch.pair) not in known:  # a plan repeats few pairs many times
            known[id(stretch.pair)] = profiles(stretch.pair, cuda_block_bytes)
        profile = known[id(stretch.pair)][stretch.backward]
        if there[BLOCKS] + profile.most[BLOCKS] > most[BLOCKS]:
            most, at = there + profile.most, profile.at
        there = there + profile.net
    assert there[ASKED] == 0, "a tensor that nobody lets go"
    return most, at, there
