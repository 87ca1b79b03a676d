"""The most memory a step holds: CUDA counts it itself; on the CPU the profiler's allocations are added up.

Counting allocations costs time per allocation, so on the CPU it has three steps after the traced ones: one without any
profiler, then two in a profile of their own: in the first of these the profiler gets to know the blocks that steps
pass on to each other (gradients), in the second it sees them go and come.

The step without a profiler is there for a program whose steps end inside an annotation (`record_function`, or an
optimizer's own): an annotation that began under one profile and ends under the next writes into what the first freed.

    annotation      begin ------------------------------- end: is there a profiler? then it writes its end time
    profiles        traced steps | freed |  none  | counted steps
"""

import time
from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gnnperf.record.machine import cuda_device
from gnnperf.record.step_clock import SafeProfile, all_objects

LET_GO_STEPS, KNOWING_STEPS, COUNTED_STEPS = 1, 1, 1
ALLOCATION = "[memory]"  # what Kineto calls an allocation, or with negative bytes a release


class CudaMemory:
    """The caching allocator's own count, of one CUDA device."""

    def __init__(self, index: int) -> None:
        self._index = index

    def start(self) -> None:
        """Count from here."""
        torch.cuda.reset_peak_memory_stats(self._index)

    def facts(self) -> dict[str, object]:
        """Peak of what tensors held, and of what the allocator held."""
        return {"method": "max_memory_allocated", "peak_bytes": torch.cuda.max_memory_allocated(self._index),
                "reserved_bytes": torch.cuda.max_memory_reserved(self._index)}  # fmt: skip


class HostMemory:
    """Allocations under a profiler, on top of the tensors that stay."""

    steps = LET_GO_STEPS + KNOWING_STEPS + COUNTED_STEPS

    def __init__(self) -> None:
        self._profiler: profile | None = None
        self._begun = 0
        self._counted_from_ns = 0
        self._facts: dict[str, object] = {}

    def start(self) -> None:
        """Nothing yet: counting would slow timed steps."""

    def begin(self) -> None:
        """Let the last profile's annotations end; start; note when the counted step starts."""
        if self._begun == LET_GO_STEPS:
            self._profiler = SafeProfile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self._profiler.start()
        if self._begun == LET_GO_STEPS + KNOWING_STEPS:
            self._counted_from_ns = time.time_ns()
        self._begun += 1

    def end(self) -> None:
        """After the last step, stop and add up."""
        if self._begun < self.steps or self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        results = profiler.profiler.kineto_results if profiler.profiler is not None else None
        assert results is not None, "a profile that was started and stopped has results"
        events: Iterable[Any] = results.events()  # torch's type stubs leave nbytes out
        moves = sorted((e.start_ns(), int(e.nbytes())) for e in events if e.name() == ALLOCATION)
        counted = [num_bytes for at_ns, num_bytes in moves if at_ns >= self._counted_from_ns]
        held = tensor_bytes()
        self._facts = {"method": "profiler allocations", "peak_bytes": held + peak_over_end(counted),
                       "held_between_steps_bytes": held}  # fmt: skip

    def facts(self) -> dict[str, object]:
        """Peak of a step, of which what tensors hold between steps."""
        return self._facts

    def close(self) -> None:
        """Stop the profiler if steps were missing."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None


def peak_over_end(moves_bytes: Iterable[int]) -> int:
    """The largest running sum of allocations and releases, above its last value; >= 0.

    [+4, +2, -4, +1] runs 0, 4, 6, 2, 3: at its peak it held 3 more than at its end.
    """
    held = peak = 0
    for num_bytes in moves_bytes:
        held += num_bytes
        peak = max(peak, held)
    return peak - held


def tensor_bytes() -> int:
    """Bytes of all CPU tensors that Python knows, their gradients included, every storage once."""
    plain = (t for t in _tensors() if t.device.type == "cpu" and t.layout is torch.strided)
    storages = (tensor.untyped_storage() for tensor in plain)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}.values())


def _tensors() -> Iterable[torch.Tensor]:
    """Plain tensors and parameters; of others (distributed, fake) the plain ones inside, which Python knows too."""
    for known in all_objects():
        if type(known) in (torch.Tensor, torch.nn.Parameter):
            assert isinstance(known, torch.Tensor)
            yield known
            if known.is_leaf and known.grad is not None:
                yield known.grad


PeakMemory = CudaMemory | HostMemory


def peak_memory_of_this_rank() -> PeakMemory:
    """CUDA's count where the rank uses a CUDA device, else the profiler's."""
    index = cuda_device()
    return HostMemory() if index is None else CudaMemory(index)
