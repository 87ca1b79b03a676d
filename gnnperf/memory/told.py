"""What torch tells of a call: its effect as recorded, its effect in a variant of the step, what it holds meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gnnperf.memory.effects import CannotTell, Effect, effect_of
from gnnperf.memory.inside import asked_bytes
from gnnperf.memory.onednn import workspace_bytes
from gnnperf.memory.slots import Slot, TensorSlot, with_tensors
from gnnperf.memory.step_calls import Call
from gnnperf.memory.variant import Variant


def told(name: str, slots: tuple[Slot, ...], tensors: list[TensorSlot]) -> Effect | None:
    """None: cannot be told. Where autograd cannot follow all tensors, the trace meant others: it follows the first."""
    alone = [replace(t, requires_grad=t.requires_grad and i == 0) for i, t in enumerate(tensors)]
    for tried in (tensors, alone):
        try:
            return effect_of(name, with_tensors(slots, tried))
        except CannotTell:
            continue
    return None


def told_in(
    variant: Variant, call: Call, effect: Effect, recorded: list[TensorSlot], actual: list[TensorSlot],
    followed: Sequence[bool],
) -> Effect | None:  # fmt: skip
    """The effect for the tensors as they are: what the step made is known, of all else the place may say more.

    A tensor that is taken for a parameter, or for data of that shape, may be the other one.

    Args:
        variant: of the step.
        call: as recorded.
        effect: as recorded.
        recorded: the call's tensors.
        actual: the same as they are.
        followed: which of them the step made.
    """
    guess = list(variant.guess(call, recorded))
    mixed = [a if known else g for a, g, known in zip(actual, guess, followed, strict=True)]
    for tensors in (mixed, actual, guess):
        slots = variant.arguments(call, recorded, tensors)
        if slots == with_tensors(call.slots, recorded):
            return effect
        found = told(call.name, slots, tensors)
        if found is not None and len(found.results) == len(effect.results):
            return found
    return None


def inside_bytes(
    call: Call, effect: Effect, recorded: Sequence[TensorSlot], actual: Sequence[TensorSlot], *, on_gpu: bool
) -> int:
    """What an op asks for inside and does not return; it grows as the tensors that the op takes do."""
    new = sum(r.num_bytes for r in effect.results if r.of_input is None and r.of_result is None)
    asked = max(asked_bytes(call.inside) - new, 0)
    before, now = (sum(t.num_bytes for t in tensors) for tensors in (recorded, actual))
    more = asked if before == now else asked * now // max(before, 1)
    if on_gpu:
        return more
    return max(more, workspace_bytes(replace(call, slots=with_tensors(call.slots, list(actual))), more))
