"""FSDP's parameters while they are whole.

FSDP::all_gather_copy_out (1)  |==== whole ====|  FSDP::post_forward (1)
again in the backward          |==== whole ====|  FSDP::post_backward_reshard (1)
the root group has no number and stays whole from forward to backward
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from gnnperf.memory.slots import TensorSlot, tensors_of
from gnnperf.memory.step_calls import Call

_OUT, _COPY = "FSDP::all_gather_copy_out", "fsdp::split_with_sizes_copy"
_FORWARD, _BACKWARD = "FSDP::post_forward", "FSDP::post_backward_reshard"
Span = tuple[int, int, int, str]  # bytes, from_ns, to_ns, op


def is_sharded(calls: Sequence[Call]) -> bool:
    """Whether FSDP runs in the step."""
    return any(call.name.startswith(_OUT) for call in calls)


def whole_parameters(calls: Sequence[Call], end_ns: int) -> Iterator[Span]:
    """When which bytes of parameters are whole."""
    for copy in (c for c in calls if c.name == _COPY):
        around = next(c for c in reversed(calls) if c.name.startswith(_OUT) and c.start_ns <= copy.start_ns)
        group = around.name.removeprefix(_OUT)
        ends = {_BACKWARD + group} | ({_FORWARD + group} if group else set())
        to_ns = min((c.end_ns for c in calls if c.name in ends and c.start_ns > copy.start_ns), default=end_ns)
        lists = [slot for slot in copy.slots if isinstance(slot, tuple)]
        yield sum(t.num_bytes for found in lists for t in found), around.start_ns, to_ns, _COPY


def whole_names(calls: Sequence[Call]) -> Iterator[TensorSlot]:
    """How ops name the memory of whole parameters, besides the parameters' own shapes: as they are copied, and flat."""
    for copy in (c for c in calls if c.name == _COPY):
        for tensor in tensors_of(copy.slots)[1:]:
            yield tensor
            yield TensorSlot((prod(tensor.shape),), tensor.dtype)
