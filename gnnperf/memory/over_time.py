"""What a rank holds over the time of a step, part by part: where the peak comes from and how long it lasts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gnnperf.generate import RankTensors
from gnnperf.memory.measured import Part, Timeline
from gnnperf.memory.planned import ASKED, GATHERED, KEPT, SENT, change_of, cuda_block_bytes, in_blocks, walked

MOST_POINTS = 400  # of a timeline: a picture is not wider
Levels = npt.NDArray[np.int64]
PARTS = {ASKED: Part.ACTIVATIONS, KEPT: Part.GRADIENTS, GATHERED: Part.GATHERED, SENT: Part.TEMPORARY}


def timeline(time_us: npt.NDArray[np.float64], parts_bytes: Mapping[Part, Levels]) -> Timeline:
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
    return Timeline(
        tuple(time_us[chosen].tolist()), {part: tuple(levels[chosen].tolist()) for part, levels in known.items()}
    )


# A plan's ops in order, and when the schedule runs them.


def planned_timeline(tensors: RankTensors, ops: Sequence[str], start_us: Sequence[float]) -> Timeline:
    """Of one rank of a plan.

    Args:
        tensors: of the rank.
        ops: names of its kernels in order of the program.
        start_us: when each begins.
    """
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
