"""PeakMemory: the most that one rank holds during a step, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    ROUNDING = "rounding"  # what the allocator hands out beyond what is asked for


@dataclass(frozen=True)
class PeakMemory:
    """One rank's peak in one step.

    Attributes:
        rank: which.
        step: name of the step's mark.
        parts_bytes: Part -> bytes at the peak.
        at: op at the peak.
        held_between_steps_bytes: tensors that stay: parameters, their gradients, optimizer state, inputs.
        hidden_bytes: what stays, too, and Python does not know: rows of sparse gradients, and DDP's buckets unless a
            hook of the program's gets them.
        buckets_bytes: DDP's buckets: copies of gradients, all the time.
        unknown: sentences: what cannot be told.
    """

    rank: int
    step: str
    parts_bytes: dict[Part, int]
    at: str
    held_between_steps_bytes: int
    hidden_bytes: int = 0
    buckets_bytes: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """All that tensors take at the peak, DDP's buckets and the allocator's rounding included."""
        return sum(self.parts_bytes.values()) + self.buckets_bytes

    @property
    def as_recorded_bytes(self) -> int:
        """What a recorder on a CPU counts ("profiler allocations", record/peak_memory.py): what is asked for.

        It adds what a step holds above its end to the tensors that Python knows. What is there at the end and unknown
        to Python drops out: `hidden_bytes`.
        """
        return self.peak_bytes - self.parts_bytes.get(Part.ROUNDING, 0) - self.hidden_bytes
