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

_FUSED = "aten::_fused_"
_SGD, _MOMENTUM_AT = "aten::_fused_sgd_", 4  # place of the momentum among its arguments
_STATES = {"aten::_fused_adam_": 2, "aten::_fused_adamw_": 2, "aten::_fused_adagrad_": 1}  # tensors per parameter
_KEPT = ("aten::mul_", "aten::lerp_")
_ADDED = ("aten::add_", "aten::addcdiv_")


@dataclass(frozen=True)
class Held:
    """Tensors of one rank.

    Attributes:
        parameters: those that optimizers change.
        state: of the optimizers.
        unknown: sentences: what could not be told.
    """

    parameters: tuple[TensorSlot, ...]
    state: tuple[TensorSlot, ...]
    unknown: tuple[str, ...]


def held(calls: Sequence[Call], with_gradient: Sequence[TensorSlot]) -> Held:
    """Parameters and state from the calls of the optimizers.

    Args:
        calls: ranges of optimizers and the ops inside of them.
        with_gradient: parameters whose gradient the backward made; all that is known where no optimizer ran. Profilers
            leave out the shapes of long lists: a fused optimizer's parameters are then those with a gradient.
    """
    if not calls:
        return Held(tuple(with_gradient), (), ("optimizer state: no optimizer ran in the step",))
    parameters, state = _one_by_one(calls)
    unknown: list[str] = []
    for call in (c for c in calls if c.name.startswith(_FUSED)):
        lists = [slot for slot in call.slots if isinstance(slot, tuple)]
        changed = lists[0] if lists else tuple(with_gradient)
        parameters += changed
        if lists:
            state += [t for tensors in lists[2:] for t in tensors if t.shape]  # steps are scalars
        else:
            states = _states(call)
            state += changed * (states or 0)
            unknown += [] if states is not None else [f"state of {call.name}"]
    return Held(tuple(parameters), tuple(state), tuple(unknown))


def _states(call: Call) -> int | None:
    """Tensors that a fused optimizer keeps per parameter, by its name; None unknown."""
    if call.name != _SGD:
        return _STATES.get(call.name)
    momentum = call.slots[_MOMENTUM_AT] if len(call.slots) > _MOMENTUM_AT else ""
    return int(float(momentum) != 0) if isinstance(momentum, str) and momentum else None


def _one_by_one(calls: Sequence[Call]) -> tuple[list[TensorSlot], list[TensorSlot]]:
    """Of optimizers that go parameter by parameter."""
    kept, added = (Counter(_targets(calls, names)) for names in (_KEPT, _ADDED))
    rest = Counter({t: max(n - kept[t], 0) for t, n in added.items()})
    return list(rest.elements()), list(kept.elements())


def _targets(calls: Sequence[Call], names: tuple[str, ...]) -> Iterable[TensorSlot]:
    return (c.slots[0] for c in calls if c.name in names and c.slots and isinstance(c.slots[0], TensorSlot))
