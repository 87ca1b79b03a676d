"""Parameters and state from calls of optimizers."""

import pytest

from gnnperf.memory.recorded import held
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot

A, B = TensorSlot((4, 8), "float32"), TensorSlot((8,), "float32")
LISTED = (TensorSlot((4, 8), ""), TensorSlot((8,), ""))
Slots = tuple[TensorSlot, ...]


def call(name: str, *slots: Slot) -> Call:
    return Call(0, name, slots, 0, 1, -1, -1)


def foreach(*names: str) -> list[Call]:
    return [call(f"aten::_foreach_{name}", LISTED) for name in names]


SGD, LION = "aten::_fused_sgd_", call("aten::_fused_lion_", "", "", "")
STEPS = (TensorSlot((), ""), TensorSlot((), ""))  # scalars
# calls, parameters with a gradient, then parameters, state, and whether the state is known
HELD: dict[str, tuple[list[Call], list[TensorSlot], Slots, Slots, bool]] = {
    "fused lists": ([call(SGD, LISTED, LISTED, LISTED, "0.", "0.9")], [], LISTED, LISTED, True),
    "scalar steps are no state": ([call("aten::_fused_adam_", LISTED, LISTED, LISTED, LISTED, (), STEPS, "0.1")], [],
                                  LISTED, LISTED + LISTED, True),
    "long lists, momentum": ([call(SGD, "", "", "", "0.", "0.9", "0.1")], [A, B], (A, B), (A, B), True),
    "long lists, no momentum": ([call(SGD, "", "", "", "0.", "0.", "0.1")], [A, B], (A, B), (), True),
    "long lists of Adam": ([call("aten::_fused_adamw_", "", "", "", "", "", "")], [A, B], (A, B), (A, B, A, B), True),
    "an unknown fused one": ([LION], [A], (A,), (), False),
    "what is multiplied is state": ([call("aten::mul_", A, ""), call("aten::add_", A, A, "1"),
                                     call("aten::add_", A, A, "-0.1")], [], (A,), (A,), True),
    "one by one": ([call("aten::add_", A, A, "-0.1"), call("aten::add_", B, B, "-0.1")], [], (A, B), (), True),
    "no optimizer": ([], [A], (A,), (), False),
    "without its tensors": ([call("apex::multi_tensor_adam")], [A], (), (), False),
    # torch's default on GPUs; weight decay multiplies the parameters, and makes them no state
    "foreach Adam": (foreach("mul_", "lerp_", "mul_", "addcmul_", "addcdiv_"), [A, B], LISTED, LISTED + LISTED, True),
    "foreach SGD, momentum": (foreach("mul_", "add_", "add_"), [A, B], LISTED, LISTED, True),
    "foreach SGD": (foreach("add_"), [A, B], LISTED, (), True),
    "long lists of foreach": ([call(f"aten::_foreach_{name}", "") for name in ("lerp_", "addcmul_", "addcdiv_")],
                              [A, B], (A, B), (A, B, A, B), True),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_parameters_and_state_by_hand(name: str) -> None:
    calls, with_gradient, parameters, state, is_known = HELD[name]
    result = held(calls, with_gradient)
    assert (result.parameters, result.state, result.has_state) == (parameters, state, is_known)


def test_unknown_state_is_named() -> None:
    assert held([LION], [A]).unknown == ("state of aten::_fused_lion_",)
    assert held([], [A]).unknown
    assert not held(*HELD["fused lists"][:2]).unknown
