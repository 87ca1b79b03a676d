"""Elementwise ops, losses and random fills: every input read once (before broadcasting), the result written once."""

from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import (
    Formula,
    OpCall,
    Tensor,
    UnknownCost,
    Work,
    broadcast,
    of_ops,
    result_dtype_bytes,
    total_bytes,
)

# Of a number from a counter-based generator (Philox 4x32-10: ten rounds of about six operations for four numbers,
# Salmon 2011).
RANDOM_FLOPS = 15.0
TRANSCENDENTAL = 10.0  # operations of a polynomial exp, log, tanh, ... (Cephes degree 5 to 7 plus range reduction)

# Ops by the number of tensor arguments they read; further arguments are scalars or the out= tensor.
_UNARY_PLAIN = """
abs neg sign sgn relu relu6 threshold hardtanh clamp clamp_min clamp_max nan_to_num ceil floor round trunc frac square
reciprocal bitwise_not hardsigmoid hardswish leaky_relu positive real imag cumsum cumprod
"""
_UNARY_TRANSCENDENTAL = """
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh sigmoid silu gelu elu celu selu mish
softplus erf erfc erfinv sqrt rsqrt logit log_sigmoid_forward log_sigmoid lgamma digamma
"""
_BINARY_PLAIN = """
add sub rsub mul div true_divide floor_divide remainder fmod minimum maximum fmin fmax xlogy copysign
threshold_backward tanh_backward sigmoid_backward hardtanh_backward leaky_relu_backward native_dropout_backward
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
__and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__
"""
_BINARY_TRANSCENDENTAL = """
pow float_power atan2 hypot gelu_backward silu_backward elu_backward mish_backward softplus_backward logit_backward
log_sigmoid_backward hardswish_backward hardsigmoid_backward
"""
_COMPARISONS = """
eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite isneginf isposinf isclose signbit
"""
UNARY = {**dict.fromkeys(_UNARY_PLAIN.split(), 1.0), **dict.fromkeys(_UNARY_TRANSCENDENTAL.split(), TRANSCENDENTAL)}
BINARY = {**dict.fromkeys(_BINARY_PLAIN.split(), 1.0), **dict.fromkeys(_BINARY_TRANSCENDENTAL.split(), TRANSCENDENTAL)}
TERNARY = {"addcmul": 3.0, "addcdiv": 3.0, "lerp": 3.0, "where": 1.0, "_s_where": 1.0, "masked_fill": 1.0}


def elementwise(arity: int, flops: float, *, bool_result: bool = False) -> Formula:
    """Formula of an op whose first `arity` arguments broadcast to its result."""

    def formula(call: OpCall) -> Work:
        inputs = [t for t in (call.optional(i) for i in range(arity)) if t is not None]
        if not inputs or (call.optional(0) is None and not any(t.shape for t in inputs)):
            raise UnknownCost
        numel = prod(broadcast([t.shape for t in inputs]))
        item = 1 if bool_result else result_dtype_bytes(inputs)
        return Work(flops * numel, total_bytes(*inputs) + numel * item)

    return formula


def fill(flops: float) -> Formula:
    """fill_, zero_, and random fills in place: written once."""
    return lambda call: Work(flops * call.tensor(0).numel, total_bytes(call.tensor(0)))


def dropout(call: OpCall) -> Work:
    """native_dropout(input, p, train): reads the input, writes result and a mask of one byte."""
    x = call.tensor(0)
    return Work(17.0 * x.numel, 2.0 * x.num_bytes + x.numel)


def _pair_loss(flops: float) -> Formula:
    """loss(input, target, [weight], reduction): both read; the scalar result is nothing."""
    return lambda call: Work(
        flops * call.tensor(0).numel, total_bytes(call.tensor(0), call.tensor(1)) + call.tensor(0).item_bytes
    )


def _pair_loss_backward(flops: float) -> Formula:
    """loss_backward(grad_output, input, target, ...): grad (often a scalar), input and target read, result written."""

    def formula(call: OpCall) -> Work:
        x, target = call.tensor(1), call.tensor(2)
        return Work(flops * x.numel, total_bytes(call.optional(0), x, target) + x.num_bytes)

    return formula


def nll_loss(call: OpCall) -> Work:
    """nll_loss_forward(log_probabilities [n, classes], target [n], ...): one entry per row is read."""
    x, target = call.tensor(0), call.tensor(1)
    return Work(2.0 * target.numel, total_bytes(target) + target.numel * x.item_bytes)


def nll_loss_backward(call: OpCall) -> Work:
    """nll_loss_backward(grad_output, input [n, classes], target [n], ...): the whole gradient is written."""
    x, target = call.tensor(1), call.tensor(2)
    return Work(2.0 * target.numel, total_bytes(x, target))


def pointwise_buffers(call: OpCall) -> Work:
    """A fused kernel whose arguments are its buffers (inductor): each read or written once; FLOPs are not recorded."""
    tensors: list[Tensor] = call.all_tensors()
    if not tensors:
        raise UnknownCost
    return Work(float("nan"), total_bytes(*tensors))


# Fused and multi-tensor optimizer ops. Plain ones (addcmul_, ...) are elementwise.


def foreach(flops: float) -> Formula:
    """_foreach_*(tensors, [tensors2, [tensors3]], scalars): every list read, one list of the first's size written."""

    def formula(call: OpCall) -> Work:
        first = call.tensor_list(0)
        others = [t for result in call.lists[1:] if result is not None for t in result]
        numel = sum(t.numel for t in first)
        return Work(flops * numel, 2.0 * total_bytes(*first) + total_bytes(*others))

    return formula


def fused(flops: float, read: int, written: int) -> Formula:
    """_fused_*(params, grads, state lists ...): the first `read` lists read, `written` lists written.

    An empty state list (no amsgrad, no momentum) has no recorded shapes and counts nothing.
    """

    def formula(call: OpCall) -> Work:
        params = call.tensor_list(0)
        lists = [call.lists[i] or () for i in range(read)]
        state_bytes = sum(total_bytes(*result) for result in lists)
        write_bytes = written * total_bytes(*params)
        return Work(flops * sum(t.numel for t in params), state_bytes + write_bytes)

    return formula


ARITHMETIC = {"add": 1.0, "sub": 1.0, "mul": 1.0, "div": 1.0, "sqrt": 1.0, "neg": 1.0, "abs": 1.0, "reciprocal": 1.0,
              "maximum": 1.0, "minimum": 1.0, "clamp_min": 1.0, "clamp_max": 1.0, "lerp": 3.0, "addcmul": 3.0,
              "addcdiv": 3.0, "pow": 10.0, "exp": 10.0, "sign": 1.0}  # fmt: skip

FORMULAS: dict[OpFamily, dict[str, Formula]] = {
    OpFamily.ELEMENTWISE: {
        **{f"aten::{name}": elementwise(1, flops) for name, flops in UNARY.items()},
        **{f"aten::{name}": elementwise(2, flops) for name, flops in BINARY.items()},
        **of_ops(_COMPARISONS, elementwise(2, 1.0, bool_result=True)),
        **{f"aten::{name}": elementwise(3, flops) for name, flops in TERNARY.items()},
        "aten::clamp.Tensor": elementwise(3, 2.0),
        **of_ops("fill_ zero_", fill(0.0)),
    },
    OpFamily.RANDOM: {
        **of_ops("normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ cauchy_ geometric_", fill(RANDOM_FLOPS)),
        **of_ops("native_dropout _fused_dropout", dropout),
        "aten::bernoulli": elementwise(1, RANDOM_FLOPS),
    },
    OpFamily.LOSS: {
        "aten::mse_loss": _pair_loss(3.0),
        "aten::l1_loss": _pair_loss(2.0),
        **of_ops("smooth_l1_loss huber_loss", _pair_loss(5.0)),
        "aten::kl_div": _pair_loss(2.0 + TRANSCENDENTAL),
        "aten::binary_cross_entropy": _pair_loss(4.0 + 2 * TRANSCENDENTAL),
        "aten::mse_loss_backward": _pair_loss_backward(3.0),
        **of_ops("smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward", _pair_loss_backward(5.0)),
        **of_ops("nll_loss_forward nll_loss2d_forward", nll_loss),
        **of_ops("nll_loss_backward nll_loss2d_backward", nll_loss_backward),
    },
    OpFamily.OPTIMIZER: {
        **{f"aten::_foreach_{name}": foreach(flops) for name, flops in ARITHMETIC.items()},
        "aten::_foreach_norm": lambda call: Work(  # read once; one number each
            2.0 * sum(t.numel for t in call.tensor_list(0)), total_bytes(*call.tensor_list(0))
        ),
        "aten::_foreach_zero_": lambda call: Work(0.0, total_bytes(*call.tensor_list(0))),  # written once
        # params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs (Kingma and Ba 2015, algorithm 1: about 12 per element)
        "aten::_fused_adam_": fused(12.0, read=5, written=3),
        "aten::_fused_adamw_": fused(13.0, read=5, written=3),
        "aten::_fused_sgd_": fused(4.0, read=3, written=2),
        "aten::_fused_adagrad_": fused(6.0, read=3, written=2),
    },
}
