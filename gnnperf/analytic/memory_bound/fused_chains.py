"""Fused chains of elementwise ops: Inductor's kernels, by their buffers and the ops in their names.

triton_poi_fused_add_mul_relu_3 (pointwise), triton_per_fused_..., triton_red_fused_... (with a reduction, rows kept on
chip or in a loop). A recording has the buffers as arguments: each is read or written once (Ansel et al. 2024), which
are the chain's bytes. The name lists the ops, each once, however often it occurs (torch/_inductor/utils.py,
get_fused_kernel_name): what is counted of instructions is the least that the chain takes. What a buffer is to the
kernel is not recorded: one that is updated in place is read and written, and counts once. A recording without shapes
has no buffers, and no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, of_bytes, sized
from gnnperf.analytic.memory_bound.streams import chain_us
from gnnperf.core import OpFamily
from gnnperf.graph import lookup, supported_ops

CHAIN = re.compile(r"triton_(?:poi|per|red)_fused_(.+?)(?:_\d+)?")
PREFIX = "aten::"


def is_chain(call: KernelCall) -> bool:
    """Whether the call is a kernel that Inductor fused."""
    return CHAIN.fullmatch(call.op_name) is not None


def chains_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of calls that `is_chain` knows; NaN: no buffers recorded."""
    elements = np.nan_to_num(sized(calls, _elements, 1)[:, 0])  # unknown: bytes only
    moved = of_bytes(calls)
    result = [chain_us(chain_ops(call.op_name), elements[row : row + 1], moved[row : row + 1], setting.device,
                      setting.memory)[0] for row, call in enumerate(calls)]  # fmt: skip
    return np.array(result, float)


@cache
def chain_ops(name: str) -> tuple[str, ...]:
    """The ops of a kernel's name that compute, without views: ("add", "silu_backward") of triton_poi_fused_..._3.

    Names hold underscores themselves, so the longest op that the cost formulas know is taken first; a word that is in
    none counts as an op.
    """
    match = CHAIN.fullmatch(name)
    words = match[1].split("_") if match else []
    result: list[str] = []
    while words:
        size = next((n for n in range(len(words), 0, -1) if PREFIX + "_".join(words[:n]) in _known()), 1)
        op = "_".join(words[:size])
        computes = op and not op.isdigit() and lookup(PREFIX + op)[0] is not OpFamily.VIEW
        result += [op] if computes else []
        words = words[size:]
    return tuple(result)


@cache
def _known() -> frozenset[str]:
    return frozenset(supported_ops())


def _elements(call: KernelCall) -> tuple[float]:
    """Of the largest buffer: the chain runs over it."""
    return (float(max((t.numel for t in call.parsed().all_tensors()), default=0)),)
