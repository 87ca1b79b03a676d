"""The table of formulas, and `op_cost`, which looks a call up in it."""

import re
from dataclasses import dataclass
from functools import lru_cache
from math import nan

from gnnperf.core import OpFamily
from gnnperf.graph.cost import attention, convolution, elementwise, embedding, matmul, movement, reduction
from gnnperf.graph.cost.op_call import Formula, UnknownCost, parse_call


@dataclass(frozen=True)
class OpCost:
    """What one call of an op costs."""

    flops: float  # FLOPs executed, a multiply-add counts two; NaN unknown
    bytes: float  # bytes read and written; NaN unknown. views cost a true zero of both
    family: OpFamily  # family of the formula; UNKNOWN for ops that are not in the table
    dtype: str | None  # torch name of the dtype of the largest input; None not recorded (bytes then assume float32)


TABLE: dict[str, tuple[OpFamily, Formula]] = {
    name: (family, formula)
    for module in (matmul, convolution, attention, reduction, embedding, movement, elementwise)
    for family, formulas in module.FORMULAS.items()
    for name, formula in formulas.items()
}

# Inductor names a kernel triton_<kind>_fused_<ops>_<number>; its recorded arguments are its buffers
# (torch/_inductor/codegen/triton.py). "tem" is a template, of which only matrix products are known.
_INDUCTOR = re.compile(r"triton_(poi|per|red|tem)_fused_.*")
_INDUCTOR_FAMILY = {"poi": OpFamily.ELEMENTWISE, "per": OpFamily.REDUCTION, "red": OpFamily.REDUCTION}
_SIGNATURE = re.compile(r"_0(?:[cde]+|(?:[cde]*\d+)+[cde]*)$")
LARGEST = 1e24  # FLOPs or bytes: weeks of the largest cluster
_COLLECTIVE = re.compile(r"(record_param_comms|nccl:|gloo:|c10d::|c10d_functional::|_c10d_functional::).*")


@lru_cache(maxsize=1 << 18)
def op_cost(op_name: str, input_dims: str | None, input_types: str | None, input_values: str | None) -> OpCost:
    """FLOPs and bytes of one op call from its recorded inputs.

    The cost is that of the whole call, so it belongs to the op that does the work: the innermost op around a kernel, or
    on a CPU an op without children. Dispatching wrappers (aten::to, aten::contiguous, aten::zeros, ...) are VIEW,
    because their work, if any, is done by a child op (aten::copy_, aten::zero_).

    The name is as the profiler wrote it ("aten::mm"), the inputs are JSON of the schema columns of these names. NaN
    where the op has no formula or its recorded inputs do not determine it. Never raises.
    """
    family, formula = lookup(op_name)
    if family is OpFamily.VIEW:
        return OpCost(0.0, 0.0, family, _dtype(op_name, input_dims, input_types))
    try:
        call = parse_call(op_name, input_dims, input_types, input_values)
        flops, moved = formula(call) if formula is not None else (nan, nan)
    except (UnknownCost, IndexError, ValueError, ArithmeticError):  # recorded inputs that are not a call of this op
        return OpCost(nan, nan, family, _dtype(op_name, input_dims, input_types))
    return OpCost(_possible(flops), _possible(moved), family, call.largest_dtype)


def _possible(amount: float) -> float:
    """FLOPs or bytes that one call can take; NaN for others, which come of inputs that are not a call of the op."""
    return amount if 0 <= amount <= LARGEST else nan


def lookup(op_name: str) -> tuple[OpFamily, Formula | None]:
    """Family and formula of an op: by its name, its name without the in-place underscore, or inductor's naming."""
    result = TABLE.get(op_name) or TABLE.get(op_name.removesuffix("_"))
    if result is not None:
        return result
    if match := _INDUCTOR.fullmatch(op_name):
        if match[1] == "tem":
            return OpFamily.GEMM, matmul.mm
        return _INDUCTOR_FAMILY[match[1]], elementwise.pointwise_buffers
    return (OpFamily.COLLECTIVE if _COLLECTIVE.fullmatch(op_name) else OpFamily.UNKNOWN), None


def fused_name(name: str) -> str | None:
    """The name that Inductor gave a fused kernel and the op that launches it; None: of something else.

    Some versions of Triton append the kernel's signature: triton_poi_fused_add_0_0d1d2de.
    """
    result = _SIGNATURE.sub("", name)
    return result if _INDUCTOR.fullmatch(result) else None


def op_family(op_name: str) -> OpFamily:
    """The family that a name by itself shows."""
    return lookup(op_name)[0]


def supported_ops() -> tuple[str, ...]:
    """Names in the table, sorted; in-place variants (trailing underscore) are covered by their plain name."""
    return tuple(sorted(TABLE))


def _dtype(op_name: str, dims: str | None, types: str | None) -> str | None:
    try:
        return parse_call(op_name, dims, types, None).largest_dtype
    except UnknownCost:
        return None
