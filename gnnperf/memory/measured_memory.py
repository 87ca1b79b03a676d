"""The measured peak in a run's card, and what of a prediction it is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# PeakMemory: the most that one rank holds during a step, and what it is made of.

OUTSIDE = "CUDA's context, buffers of NCCL, workspaces of libraries and fragmentation are not in it"


class Part(StrEnum):
    """What memory is held for."""

    PARAMETERS = "parameters"
    OPTIMIZER_STATE = "optimizer_state"
    INPUTS = "inputs"  # data and buffers that are there before the step
    GRADIENTS = "gradients"  # of parameters, as many as there are at the peak
    ACTIVATIONS = "activations"  # what ops return: for later ops, and for the backward
    GATHERED = "gathered"  # sharded parameters, whole for a while
    TEMPORARY = "temporary"  # of the op at the peak, while it runs
    ROUNDING = "rounding"  # what the allocator hands out beyond what is requested


@dataclass(frozen=True)
class Timeline:
    """Bytes requested at points of time."""

    time_us: tuple[float, ...]  # [num_points] since the step's begin, ascending
    parts_bytes: Mapping[Part, tuple[int, ...]]  # part -> [num_points]

    @property
    def total_bytes(self) -> tuple[int, ...]:
        """[num_points] of all parts."""
        return tuple(map(sum, zip(*self.parts_bytes.values(), strict=True)))


@dataclass(frozen=True)
class PeakMemory:
    """One rank's peak in one step."""

    rank: int  # which
    step: str  # name of the step's mark
    parts_bytes: dict[Part, int]  # Part -> bytes at the peak
    at: str  # op at the peak
    held_between_steps_bytes: int  # tensors that stay: parameters, their gradients, optimizer state, inputs
    # what stays, too, and Python does not know: rows of sparse gradients, and DDP's buckets unless a hook of the
    # program's gets them
    hidden_bytes: int = 0
    buckets_bytes: int = 0  # DDP's buckets: copies of gradients, all the time
    unknown: tuple[str, ...] = ()  # sentences: what cannot be determined
    # what a training step holds and the trace lacks, e.g. weights; the peak is then a lower bound.
    missing: tuple[str, ...] = ()
    # what CUDA's caching allocator may hold at most, of freed blocks too; None: unknown
    most_reserved_bytes: int | None = None
    # what is there over the time of the step; None: not known
    timeline: Timeline | None = field(default=None, compare=False, repr=False)

    @property
    def peak_bytes(self) -> int:
        """All that tensors take at the peak, DDP's buckets and the allocator's rounding included."""
        return sum(self.parts_bytes.values()) + self.buckets_bytes

    @property
    def as_recorded_bytes(self) -> int:
        """What a recorder on a CPU counts ("profiler allocations", record/peak_memory.py): what is requested.

        It adds what a step holds above its end to the tensors that Python knows. What is there at the end and unknown
        to Python drops out: `hidden_bytes`.
        """
        return self.peak_bytes - self.parts_bytes.get(Part.ROUNDING, 0) - self.hidden_bytes


_ADDED_UP = "profiler allocations"  # record/peak_memory.py, HostMemory
_METHODS = (_ADDED_UP, "max_memory_allocated")


@dataclass(frozen=True)
class Measured:
    """One rank's peak as its recorder counted it."""

    method: str  # how; decides what was counted
    peak_bytes: int  # the most of a step

    def counted_bytes(self, peak: PeakMemory) -> int:
        """Of a prediction, what this method counts: on a CPU what is requested and Python knows; CUDA counts all."""
        return peak.as_recorded_bytes if self.method == _ADDED_UP else peak.peak_bytes

    def error(self, peak: PeakMemory) -> float:
        """Signed relative error of a prediction: counted / measured - 1."""
        return self.counted_bytes(peak) / self.peak_bytes - 1.0


def measured_peaks(card: Mapping[str, object] | None) -> dict[int, Measured]:
    """Rank -> measured peak; without those whose card states none."""
    result: dict[int, Measured] = {}
    ranks = (card or {}).get("ranks")
    for entry in ranks if isinstance(ranks, list) else ():
        facts = entry.get("peak_memory") if isinstance(entry, dict) else None
        if isinstance(facts, dict) and isinstance(facts.get("peak_bytes"), int) and facts["peak_bytes"] > 0:
            method = facts.get("method")
            if isinstance(entry.get("rank"), int) and method in _METHODS:
                result[entry["rank"]] = Measured(method, facts["peak_bytes"])
    return result
