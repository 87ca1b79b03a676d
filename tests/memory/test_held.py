"""Parameters and state from calls of optimizers."""

from gnnperf.memory.recorded import held
from gnnperf.memory.step_calls import Call
from gnnperf.memory.storages import Slot, TensorSlot

A, B = TensorSlot((4, 8), "float32"), TensorSlot((8,), "float32")
LISTED = (TensorSlot((4, 8), ""), TensorSlot((8,), ""))


def call(name: str, *slots: Slot) -> Call:
    return Call(0, name, slots, 0, 1, -1, -1)


def test_a_fused_optimizer_lists_parameters_gradients_and_momentum() -> None:
    result = held([call("aten::_fused_sgd_", LISTED, LISTED, LISTED, "0.", "0.9")], [])
    assert (result.parameters, result.state, result.unknown) == (LISTED, LISTED, ())


def test_scalar_steps_are_no_state_worth_its_bytes() -> None:
    steps = (TensorSlot((), ""), TensorSlot((), ""))
    result = held([call("aten::_fused_adam_", LISTED, LISTED, LISTED, LISTED, (), steps, "0.1")], [])
    assert result.state == LISTED + LISTED


def test_where_long_lists_were_left_out_gradients_and_the_optimizer_tell() -> None:
    with_momentum = held([call("aten::_fused_sgd_", "", "", "", "0.", "0.9", "0.1")], [A, B])
    assert (with_momentum.parameters, with_momentum.state) == ((A, B), (A, B))
    without = held([call("aten::_fused_sgd_", "", "", "", "0.", "0.", "0.1")], [A, B])
    assert without.state == ()
    assert len(held([call("aten::_fused_adamw_", "", "", "", "", "", "")], [A, B]).state) == 4


def test_state_of_an_unknown_fused_optimizer_is_named() -> None:
    result = held([call("aten::_fused_lion_", "", "", "")], [A])
    assert result.unknown == ("state of aten::_fused_lion_",)


def test_one_by_one_what_is_multiplied_is_state() -> None:
    momentum = [call("aten::mul_", A, ""), call("aten::add_", A, A, "1"), call("aten::add_", A, A, "-0.1")]
    result = held(momentum, [])
    assert (result.parameters, result.state) == ((A,), (A,))
    plain = held([call("aten::add_", A, A, "-0.1"), call("aten::add_", B, B, "-0.1")], [])
    assert (plain.parameters, plain.state) == ((A, B), ())


def test_without_an_optimizer_its_state_is_unknown() -> None:
    result = held([], [A])
    assert result.parameters == (A,)
    assert result.unknown


def test_foreach_adam_moves_two_moments_and_scales_weights() -> None:
    """torch's default on GPUs; weight decay multiplies the parameters, and makes them no state."""
    names = ("mul_", "lerp_", "mul_", "addcmul_", "addcdiv_")
    result = held([call(f"aten::_foreach_{name}", LISTED) for name in names], [A, B])
    assert (result.parameters, result.state) == (LISTED, LISTED + LISTED)
    assert result.has_state


def test_foreach_sgd_keeps_what_it_multiplies() -> None:
    with_momentum = [call(f"aten::_foreach_{name}", LISTED) for name in ("mul_", "add_", "add_")]
    result = held(with_momentum, [A, B])
    assert (result.parameters, result.state) == (LISTED, LISTED)
    plain = held([call("aten::_foreach_add_", LISTED)], [A, B])
    assert (plain.parameters, plain.state, plain.has_state) == (LISTED, (), True)


def test_long_lists_of_foreach_are_as_the_gradients() -> None:
    result = held([call(f"aten::_foreach_{name}", "") for name in ("lerp_", "addcmul_", "addcdiv_")], [A, B])
    assert (result.parameters, result.state) == ((A, B), (A, B, A, B))


def test_state_is_not_found_without_an_optimizer_or_its_tensors() -> None:
    assert not held([], [A]).has_state
    assert not held([call("apex::multi_tensor_adam")], [A]).has_state
    assert not held([call("aten::_fused_lion_", "", "", "")], [A]).has_state
