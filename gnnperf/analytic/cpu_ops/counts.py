"""What the time of an op on a CPU is made of: how often each price is paid in one call.

latency = sum over counts of count x price: a roofline (Williams, Waterman, Patterson 2009) in which arithmetic and
traffic do not overlap, as on a core that runs one op at a time, with the terms that small ops add to it.

                calls  products  rows   arithmetic              panels            traffic
    gemm        1      b - 1     b m    2 b m n k               mk, kn, mn        beyond the last-level cache
    conv        1                       2 N P Q R S C' K'                         all; beyond the cache
    embedding   1                n      n D elements                              rows of a table that caches miss
    optimizer   1      tensors          elements                                  all; beyond the cache
    recurrent   1      time steps       FLOPs                                     all; beyond the cache
    others      1                       FLOPs                                     all; beyond the cache

Matrix products: lower-order terms are packing of both operands and the write of the result (Goto, van de Geijn 2008,
section 4). Convolutions: channels come in blocks of 16 (oneDNN, nChw16c), so that C' and K' are rounded up. Every count
grows with every size, so more work is never faster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.schema import OpFamily

CALLS = ("call", "product", "tensor")  # host work
TRAFFIC = ("byte", "far_byte", "left", "right", "result", "row", "missed_row")  # what a warm cache makes cheaper
ARITHMETIC = ("flop", "lane_flop", "element")
COUNTS = (*CALLS, *TRAFFIC, *ARITHMETIC)
CHANNEL_BLOCK, FEW_CHANNELS = 16, 4  # oneDNN keeps up to four input channels as they are
CACHE_BYTES = 2.0**23  # beyond it a tensor comes from memory: a virtual machine's share of the last level, about
ITEM_BYTES = 4.0
FAR_SHARPNESS, TABLE_SHARPNESS = 6.0, 2.0  # sweeps leave the cache at once, look-ups little by little
RECURRENT_LAYER, RECURRENT_STACK = "mkldnn_rnn_layer", ("lstm", "gru", "rnn_tanh", "rnn_relu")
KEYS = ["op_name", "input_dims", "dtype", "family", "flops", "bytes"]

Shape = list[Any]  # numbers, or shapes where the argument is a list of tensors
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Call:
    """One call: its name after `::`, its shapes, and what the cost formula says."""

    op: str
    dims: tuple[Shape, ...]
    flops: float
    moved_bytes: float


def op_counts(calls: pd.DataFrame) -> np.ndarray:
    """Counts of calls.

    Args:
        calls: [n] rows with KEYS; unknown: NaN or None.

    Returns:
        [n, len(COUNTS)]; NaN in all of a row where neither FLOPs nor bytes are known.
    """
    rows = calls[KEYS].astype(object).where(calls[KEYS].notna(), None).itertuples(index=False, name=None)
    found = [_counts(str(op), dims, str(family), flops, moved) for op, dims, _, family, flops, moved in rows]
    return np.array(found, dtype=float).reshape(len(calls), len(COUNTS))


@lru_cache(maxsize=1 << 16)
def _counts(op: str, dims: str | None, family: str, flops: float | None, moved: float | None) -> tuple[float, ...]:
    if flops is None and moved is None:
        return (float("nan"),) * len(COUNTS)
    shapes = tuple(json.loads(dims)) if dims else ()
    call = Call(op.rpartition("::")[2], shapes, flops or 0.0, moved or 0.0)
    found = BY_FAMILY.get(family, _streamed)(call)
    return tuple(found.get(name, 0.0) for name in COUNTS)


def _streamed(call: Call) -> Counts:
    far = _beyond(call.moved_bytes, CACHE_BYTES, FAR_SHARPNESS) * call.moved_bytes
    return {"call": 1.0, "flop": call.flops, "byte": call.moved_bytes, "far_byte": far}


def _beyond(num_bytes: float, cache_bytes: float, sharpness: float) -> float:
    """Share that a cache no longer holds."""
    return 1.0 / (1.0 + min(cache_bytes / max(num_bytes, 1.0), 1e6) ** sharpness)


def _product(call: Call) -> Counts:
    steps = recurrent_steps(call)
    if steps is not None:
        return {**_streamed(call), "product": steps}
    sizes = product_sizes(call)
    if sizes is None:
        return _streamed(call)
    b, m, n, k = sizes
    far = _beyond(call.moved_bytes, CACHE_BYTES, FAR_SHARPNESS) * call.moved_bytes
    return {"call": 1.0, "product": max(b - 1.0, 0.0), "row": b * m, "flop": 2.0 * b * m * n * k, "left": b * m * k,
            "right": b * k * n, "result": b * m * n, "far_byte": far}  # fmt: skip


def recurrent_steps(call: Call) -> float | None:
    """Time steps of all layers of a recurrent network; None of other calls, and where shapes do not tell."""
    if call.op.startswith(RECURRENT_LAYER):  # (x [T, B, I], ...)
        return float(call.dims[0][0]) if call.dims and call.dims[0] else None
    if call.op not in RECURRENT_STACK or len(call.dims) < 2:
        return None
    x, states = call.dims[0], call.dims[1]  # [T, B, I] or [B, T, I]; [L, B, H], of an LSTM a list of two
    first = states[0] if states and isinstance(states[0], list) else states
    if not x or len(x) != 3 or not first or len(first) != 3 or not first[1]:
        return None
    return float(x[0] * x[1] / first[1] * first[0])


def product_sizes(call: Call) -> tuple[float, float, float, float] | None:
    """(batch, m, n, k) of a product; None where the recorded shapes are none."""
    first = 1 if call.op in ("addmm", "baddbmm") else 0
    if len(call.dims) < first + 2 or not all(_is_shape(d) for d in call.dims[first : first + 2]):
        return None
    left, right = call.dims[first], call.dims[first + 1]
    if call.op == "linear":
        return 1.0, float(prod(left[:-1])), float(prod(right[:-1])), float(left[-1])
    if len(right) > 2 and len(left) > 1:
        return float(prod(right[:-2])), float(left[-2]), float(right[-1]), float(left[-1])
    columns = right[-1] if len(right) > 1 else 1
    return 1.0, float(prod(left[:-1])), float(columns), float(left[-1])


def _is_shape(found: Shape | None) -> bool:
    """Of one tensor with at least one dimension: not a list of tensors."""
    return bool(found) and not isinstance(found[0], list)  # type: ignore[index]


def _convolution(call: Call) -> Counts:
    counts = dict(_streamed(call))
    weight = (
        call.dims[2] if "backward" in call.op and len(call.dims) > 2 else call.dims[1] if len(call.dims) > 1 else []
    )
    if len(weight or []) < 3 or not prod(weight[:2]):
        return counts
    out, into = weight[0], weight[1]
    if into == 1:  # one channel per group: no product to speak of
        return {**counts, "flop": 0.0, "lane_flop": call.flops}
    blocks = _blocked(out) * (_blocked(into) if into > FEW_CHANNELS else FEW_CHANNELS)
    return {**counts, "flop": call.flops * blocks / (out * into)}


def _blocked(channels: int) -> int:
    return -(-channels // CHANNEL_BLOCK) * CHANNEL_BLOCK


def _lookup(call: Call) -> Counts:
    """Rows of a table gathered, or a sparse gradient added to them (three passes over its elements)."""
    table = call.dims[0] if call.dims else []
    if not table or not table[-1]:
        return _streamed(call)
    if call.op == "add_":
        rows, passes = call.flops / 2.0 / table[-1], 3.0
    elif call.op in ("embedding", "embedding_bag") and len(call.dims) > 1 and call.dims[1] is not None:
        rows, passes = float(prod(call.dims[1])), 1.0
    else:
        return _streamed(call)
    elements = rows * table[-1]
    missed = _beyond(prod(table) * ITEM_BYTES, CACHE_BYTES, TABLE_SHARPNESS) * rows
    written = max(call.moved_bytes - ITEM_BYTES * passes * elements, 0.0)
    return {"call": 1.0, "row": rows, "missed_row": missed, "element": passes * elements, "byte": written}


def _update(call: Call) -> Counts:
    first = call.dims[0] if call.dims else []
    return {**_streamed(call), "tensor": float(len(first)) if first and isinstance(first[0], list) else 1.0}


BY_FAMILY: Mapping[str, Callable[[Call], Counts]] = {
    OpFamily.GEMM: _product,
    OpFamily.CONV: _convolution,
    OpFamily.EMBEDDING: _lookup,
    OpFamily.OPTIMIZER: _update,
}
