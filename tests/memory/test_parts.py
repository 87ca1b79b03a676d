"""oneDNN's workspace, allocations inside ops, names of storages."""

import pytest

from gnnperf.memory.given import blocked_bytes, requested_bytes, workspace_bytes
from gnnperf.memory.recorded import held
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Role, Slot, Storage, Storages, TensorSlot

FLOAT = "float32"


def test_channels_come_in_blocks_of_sixteen() -> None:
    assert blocked_bytes(TensorSlot((2, 16, 5, 5), FLOAT)) == 2 * 16 * 25 * 4
    assert blocked_bytes(TensorSlot((2, 8, 5, 5), FLOAT)) == 2 * 16 * 25 * 4
    assert blocked_bytes(TensorSlot((2, 17, 5, 5), FLOAT)) == 2 * 32 * 25 * 4
    assert blocked_bytes(TensorSlot((2, 3, 5, 5), FLOAT)) == 0  # read as it is


def test_the_backward_of_a_convolution_copies_gradient_and_input() -> None:
    gradient, data = TensorSlot((16, 16, 16, 16), FLOAT), TensorSlot((16, 8, 32, 32), FLOAT)
    slots = (gradient, data, TensorSlot((16, 8, 3, 3), FLOAT))
    call = Call(0, "aten::convolution_backward", slots, 0, 1, -1, -1)
    assert workspace_bytes(call, 0) == 262_144 + 1_048_576  # as measured by itself
    assert workspace_bytes(call, 2_000_000) == 524_288 + 2_000_000
    assert workspace_bytes(Call(0, "aten::mm", slots, 0, 1, -1, -1), 0) == 0


def test_what_is_requested_for_inside() -> None:
    inside = [
        ("aten::empty", ("[8, 4]", "6", "0", "", "", "")),  # 128
        ("aten::empty_strided", ("[3]", "[1]", "4", "0", "", "")),  # 24
        ("aten::resize_", (TensorSlot((0,), FLOAT), "[10]", "")),  # 40
        ("aten::resize_", (TensorSlot((10,), FLOAT), "[5]", "")),  # smaller: nothing
        ("aten::mm", (TensorSlot((3, 3), FLOAT), TensorSlot((3, 3), FLOAT))),
    ]
    assert requested_bytes(inside) == 128 + 24 + 40


def made(storages: Storages, count: int) -> list[Storage]:
    return [storages.make(4, Role.ACTIVATION, (0, 0), "", requires_grad=False) for _ in range(count)]


def test_what_no_one_took_yet_comes_first_and_then_the_newest() -> None:
    storages = Storages()
    first, second = made(storages, 2)
    storages.name(first, (1,), FLOAT)
    storages.name(second, (1,), FLOAT)
    taken = [storages.take((1,), FLOAT, call=call) for call in range(3)]
    assert [result.storage for result in taken if result] == [second, first, second]
    assert storages.take((1,), "int64") is None
    assert storages.take((2,), FLOAT) is None


def test_arguments_of_one_call_are_different_tensors_and_the_likely_ones() -> None:
    storages = Storages()
    all_of_them = made(storages, 3)
    for one in all_of_them:
        storages.name(one, (1,), FLOAT)
    result = [storages.take((1,), FLOAT, [0], call=7) for _ in range(2)]
    assert [one.storage for one in result if one] == all_of_them[::2]


def test_what_the_forward_left_over_is_for_no_one_in_the_backward() -> None:
    storages = Storages()
    gradient, left_over = made(storages, 2)
    storages.name(left_over, (1,), FLOAT)
    storages.in_backward = True
    storages.name(gradient, (1,), FLOAT)
    result = [storages.take((1,), FLOAT, call=call) for call in range(2)]
    assert [one.storage for one in result if one] == [gradient, gradient]


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
