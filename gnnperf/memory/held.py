"""What a rank holds from step to step, as its optimizers tell: parameters, their gradients, optimizer state.

A fused or foreach op takes lists: parameters, gradients, state. An optimizer that goes parameter by parameter changes
tensors in place: state is multiplied or moved (`mul_`, `lerp_`), and everything else that is added to is a parameter.

    aten::_fused_sgd_  [params] [grads] [momentum]          parameters, gradients, state
    aten::mul_ buf; aten::add_ buf, grad; aten::add_ param  one multiplied, two added to: one parameter, one state
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnnperf.memory.slots import TensorSlot
from gnnperf.memory.step_calls import Call

_FUSED = ("aten::_fused_", "aten::_foreach_")
_KEPT = ("aten::mul_", "aten::lerp_")
_ADDED = ("aten::add_", "aten::addcdiv_")
_OF_FUSED = 3  # lists: parameters, gradients, then state


@dataclass(frozen=True)
class Held:
    """Tensors of one rank.

    Attributes:
        parameters: those that optimizers change.
        state: of the optimizers.
        sparse: parameters whose gradients are sparse.
        unknown: optimizers that changed nothing that was recorded.
    """

    parameters: tuple[TensorSlot, ...]
    state: tuple[TensorSlot, ...]
    sparse: tuple[TensorSlot, ...]
    unknown: tuple[str, ...]


def held(calls: Sequence[Call], gradients: Iterable[TensorSlot]) -> Held:
    """Parameters and state from the calls of the optimizers.

    Args:
        calls: ranges of optimizers, each before the calls inside of it.
        gradients: parameters whose gradient the backward made; they are all that is known where no optimizer ran.
    """
    if not calls:
        return Held(tuple(gradients), (), (), ("no optimizer ran in the step: its state",))
    fused = [c for c in calls if c.name.startswith("aten::_fused_")]
    lists = [_lists(c) for c in fused]
    parameters = [t for found in lists for t in found[0]]
    state = [t for found in lists for tensors in found[2:] for t in tensors if t.shape]
    alone, kept = _one_by_one(calls)
    return Held((*parameters, *alone), (*state, *kept), tuple(_sparse(calls)), ())


def _lists(call: Call) -> list[tuple[TensorSlot, ...]]:
    return [slot for slot in call.slots if isinstance(slot, tuple)]


def _one_by_one(calls: Sequence[Call]) -> tuple[list[TensorSlot], list[TensorSlot]]:
    kept, added = (Counter(_target(c) for c in calls if c.name in names) for names in (_KEPT, _ADDED))
    state = [t for t in kept.elements() if t is not None]
    rest = Counter({t: max(n - kept[t], 0) for t, n in added.items()})
    return [t for t in rest.elements() if t is not None], state


def _target(call: Call) -> TensorSlot | None:
    return call.slots[0] if call.slots and isinstance(call.slots[0], TensorSlot) else None


def _sparse(calls: Sequence[Call]) -> Iterable[TensorSlot]:
    """Parameters to which a sparse tensor is added."""
    for call in calls:
        target = _target(call)
        if call.name in _ADDED and target is not None and any(name == "aten::_nnz" for name, _ in call.inside):
            yield target
