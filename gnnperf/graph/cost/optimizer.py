"""Fused and multi-tensor optimizer ops. Plain ones (addcmul_, ...) are elementwise."""

from __future__ import annotations

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import OpCall
from gnnperf.graph.cost.recurrent import Formula, Work, total_bytes

FAMILY = OpFamily.OPTIMIZER


def foreach(flops: float) -> Formula:
    """_foreach_*(tensors, [tensors2, [tensors3]], scalars): every list read, one list of the first's size written."""

    def formula(call: OpCall) -> Work:
        first = call.tensor_list(0)
        others = [t for result in call.lists[1:] if result is not None for t in result]
        numel = sum(t.numel for t in first)
        return Work(flops * numel, 2.0 * total_bytes(*first) + total_bytes(*others))

    return formula


def foreach_norm(call: OpCall) -> Work:
    """_foreach_norm(tensors, ord): read once; one number each."""
    first = call.tensor_list(0)
    return Work(2.0 * sum(t.numel for t in first), total_bytes(*first))


def foreach_zero(call: OpCall) -> Work:
    """_foreach_zero_(tensors): written once."""
    return Work(0.0, total_bytes(*call.tensor_list(0)))


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

FORMULAS: dict[str, Formula] = {
    **{f"aten::_foreach_{name}": foreach(flops) for name, flops in ARITHMETIC.items()},
    "aten::_foreach_norm": foreach_norm,
    "aten::_foreach_zero_": foreach_zero,
    # params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs (Kingma and Ba 2015, algorithm 1: about 12 per element)
    "aten::_fused_adam_": fused(12.0, read=5, written=3),
    "aten::_fused_adamw_": fused(13.0, read=5, written=3),
    "aten::_fused_sgd_": fused(4.0, read=3, written=2),
    "aten::_fused_adagrad_": fused(6.0, read=3, written=2),
}
