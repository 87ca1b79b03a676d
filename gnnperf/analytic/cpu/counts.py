"""What the time of an op on a CPU is made of: how often each price is paid in one call.

latency = sum over counts of count x price: a roofline (Williams, Waterman, Patterson 2009) in which arithmetic and
traffic do not overlap, as on a core that runs one op at a time, with the terms that small ops add to it.

                calls  products    rows        arithmetic         panels         traffic
    gemm        1      b - 1       b m         2 b m n k          mk, kn, mn     beyond the last-level cache
    conv        1      set up                  2 N P Q R S C' K'  weights        all; beyond the cache
    depthwise   1      N C R                   FLOPs              weights        all; beyond the cache
    attention   1      batch x heads           FLOPs, numbers                    all; beyond the cache
    recurrent   1      time steps  2 T B       FLOPs              of every step  beyond the cache
    embedding   1                  n           n D elements                      rows of a table that caches miss
    optimizer   1      tensors                 elements                          all; beyond the cache
    softmax     1                  n           FLOPs                             all; beyond the cache
    layer norm  1                  n           FLOPs                             all; beyond the cache
    batch norm  1                  N C         FLOPs                             all; beyond the cache
    reduction   1                  n if inner  FLOPs                             all; beyond the cache
    sorts       1                              elements
    random      1                              numbers                           beyond the cache
    indexing    1                              FLOPs, elements                   all; beyond the cache
    others      1                              FLOPs                             all; beyond the cache

Every call also pays for being cold: the share of its code that other work drove out of a core's own caches since the
op last ran (`between_bytes`). Matrix products: lower-order terms are packing of both operands and writing the result
(Goto, van de Geijn 2008, section 4). Convolutions: channels come in blocks of 16 (oneDNN, nChw16c), so that C' and K'
are rounded up, and weights are brought into that order. Every count grows with every size, so more work is never
faster, except where a convolution fills no vector and other code takes over.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import OpFamily
from gnnperf.graph import UnknownCost, combined, grouped_size

CACHE_BYTES = 2.0**23  # beyond it a tensor comes from memory: a virtual machine's share of the last level, about
FAR_SHARPNESS = 6.0  # a sweep leaves the cache at once
ITEM_BYTES = 4.0

Shape = list[Any]  # numbers, or shapes where the argument is a list of tensors
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Call:
    """One call: its name after `::`, its shapes, and what the cost formula gives."""

    op: str  # name without namespace
    dims: tuple[Shape, ...]  # shapes of the arguments
    flops: float  # of the whole call
    moved_bytes: float
    between_bytes: float = 0.0  # what the thread moved since it last ran this op


def streamed(call: Call) -> Counts:
    """A sweep over tensors: FLOPs, bytes, and those beyond the cache."""
    return {"call": 1.0, "flop": call.flops, "byte": call.moved_bytes, "far_byte": far_bytes(call)}


def far_bytes(call: Call) -> float:
    """Bytes of a sweep that come from memory."""
    return out_of_range(call.moved_bytes, CACHE_BYTES, FAR_SHARPNESS) * call.moved_bytes


def out_of_range(num_bytes: float, cache_bytes: float, sharpness: float) -> float:
    """Share that a cache no longer holds."""
    return 1.0 / (1.0 + min(cache_bytes / max(num_bytes, 1.0), 1e6) ** sharpness)


def is_shape(result: Shape | None) -> bool:
    """Of one tensor with at least one dimension: not a list of tensors."""
    return bool(result) and not isinstance(result[0], list)  # type: ignore[index]


def first_shape(call: Call) -> Shape:
    """Of the first tensor argument; [] none."""
    return next((d for d in call.dims if is_shape(d)), [])


def leading(shape: Shape) -> float:
    """Rows of a tensor: its elements over its last dimension."""
    return float(prod(shape[:-1]))


# Ops that work row by row: softmax, layer norm, reductions, look-ups. Each row costs next to its elements.
#
# A row is finished by adding up a vector register and by scalar arithmetic, whatever its length: 30 to 120 ns, which is
# most of the time of short rows (classes of a classifier, pixels of a small image).

# No pass over rows: they compare, move and count, at prices of their own.
SELECTIONS = ("sort", "argsort", "topk", "nonzero", "index", "bincount", "kthvalue", "mode")
TABLE_SHARPNESS = 2.0  # look-ups leave the cache little by little
SUM_PASSES = 3.0  # of a sparse gradient added to a table: two reads, one write
SUM_MISSES = 2.0  # of its rows that the cache does not hold: they are read, and written back


def softmax(call: Call) -> Counts:
    """Along the last dimension, as a rule."""
    shape = first_shape(call)
    return {**streamed(call), "row": leading(shape)} if shape else streamed(call)


def norm(call: Call) -> Counts:
    """Layer norm has statistics per row; batch and group norm go over each sample's channels."""
    shape = first_shape(call)
    if "layer" not in call.op:
        shape = shape[:3] if len(shape) > 2 else []
    return {**streamed(call), "row": leading(shape)} if shape else streamed(call)


def reduction(call: Call) -> Counts:
    """Sums and the like: rows where the last dimensions are reduced, else vectors are added to vectors."""
    if call.op in SELECTIONS:
        return {"call": 1.0, "element": call.moved_bytes / ITEM_BYTES}
    shape = call.dims[0] if call.dims else []
    if not is_shape(shape):
        return streamed(call)
    # The results, if there are as many as leading dimensions have elements; which axes went is not recorded.
    results = max(round(call.moved_bytes / ITEM_BYTES) - prod(shape), 1)
    is_rows = results == 1 or results in accumulate(shape[:-1], mul)
    return {**streamed(call), "row": float(results) if is_rows else 0.0}


def lookup(call: Call) -> Counts:
    """Rows of tables that look-ups gather, or that sparse gradients are added to."""
    table = call.dims[0] if call.dims else []
    if not table or not table[-1]:
        return streamed(call)
    if call.op == "add_":
        rows, passes, misses = call.flops / 2.0 / table[-1], SUM_PASSES, SUM_MISSES
    elif call.op in ("embedding", "embedding_bag") and len(call.dims) > 1 and call.dims[1] is not None:
        rows, passes, misses = float(prod(call.dims[1])), 1.0, 1.0
    else:
        return streamed(call)
    elements = rows * table[-1]
    missed = misses * out_of_range(prod(table) * ITEM_BYTES, CACHE_BYTES, TABLE_SHARPNESS) * rows
    written = max(call.moved_bytes - ITEM_BYTES * passes * elements, 0.0)
    return {"call": 1.0, "row": rows, "missed_row": missed, "element": passes * elements, "byte": written}


# Recurrent layers (LSTM, GRU): a product of all inputs at once, and one of the state per time step.
#
# Each step reads the recurrent weights anew: small batches pay for the weights, not for their arithmetic (Appleyard,
# Kocisky, Blunsom 2016, section 3).

LAYER, STACK = "mkldnn_rnn_layer", ("lstm", "gru", "rnn_tanh", "rnn_relu")
GRADIENT = 2.0  # of inputs and of weights: twice the products


def recurrent(call: Call) -> Counts | None:
    """Counts of a layer or of a stack of them; None of other calls, streamed where shapes do not determine them."""
    if call.op.startswith(LAYER):
        return _layer(call)
    return _stack(call) if call.op in STACK else None


def _layer(call: Call) -> Counts:
    """(x [T, B, I], weights [G, I], weights [G, H], ...), the same in its gradient."""
    if len(call.dims) < 3 or [len(d or []) for d in call.dims[:3]] != [3, 2, 2] or not is_shape(call.dims[0]):
        return streamed(call)
    (steps, batch, _), of_inputs, of_state = call.dims[:3]
    times = GRADIENT if "backward" in call.op else 1.0
    return _with_call(call, _products(steps, batch, of_inputs, of_state, times))


def _stack(call: Call) -> Counts:
    """(x [T, B, I] or [B, T, I], states [L, B, H], of an LSTM a list of two, all weights and biases, ...)."""
    x, states, weights = [*call.dims, [], [], []][:3]
    first = states[0] if states and isinstance(states[0], list) else states
    matrices = [w for w in weights or [] if isinstance(w, list) and len(w) == 2]
    if not x or len(x) != 3 or not first or len(first) != 3 or not first[1] or len(matrices) < 2:
        return streamed(call)
    steps = x[0] * x[1] / first[1]
    layers = [_products(steps, first[1], *pair, 1.0) for pair in list(pairwise(matrices))[::2]]
    return _with_call(call, {name: sum(layer[name] for layer in layers) for name in layers[0]})


def _products(steps: float, batch: float, of_inputs: Shape, of_state: Shape, times: float) -> dict[str, float]:
    """Panels of both products of a layer (counts.py), weights [G, I] and [G, H]."""
    gates, inputs = of_inputs
    return {
        "product": times * steps,
        "row": times * 2.0 * steps * batch,
        "left": times * steps * batch * (inputs + of_state[1]),
        "right": times * (inputs * gates + steps * of_state[1] * of_state[0]),
        "result": times * 2.0 * steps * batch * gates,
    }


def _with_call(call: Call, products: Counts) -> Counts:
    return {"call": 1.0, "flop": call.flops, "far_byte": far_bytes(call), **products}


CALLS = ("call", "cold_call", "product", "tensor")  # host work
TRAFFIC = ("byte", "far_byte", "left", "right", "result", "row", "missed_row")  # what a warm cache makes cheaper
ARITHMETIC = ("flop", "lane_flop", "element", "draw")
COUNTS = (*CALLS, *TRAFFIC, *ARITHMETIC)
FEW_IMAGES, LANES, SMALL_FILTER, VOLUME = 16, 8, 9, 4
CHANNEL_BLOCK, FEW_CHANNELS = 16, 4  # oneDNN keeps up to four input channels as they are
OWN_CACHE_BYTES, OWN_SHARPNESS = 2.0**19, 1.0  # of one core (level 2); code leaves it little by little
DRAW_FLOPS = 15.0  # of a number, by the formula of its cost
BLOCK_KEYS = 512  # that attention on CPUs takes at once
SPLIT_CALLS = 56.0  # more ops that attention opens with dropout than without
LANE = ["rank", "thread"]
AT_ONCE = 0.0  # bytes between two calls of what is called again and again: op tables, calibrations
KEYS = ["op_name", "input_dims", "dtype", "family", "flops", "bytes", "between_bytes"]
# Ops of several parts: the family of the part that takes the time, where another one moves more bytes.
PAID_AS: Mapping[str, OpFamily] = dict.fromkeys(("aten::dropout", "aten::feature_dropout"), OpFamily.RANDOM)


def paid_families(calls: pd.DataFrame) -> pd.Series:
    """[n] the family whose prices each call (columns op_name, family) pays."""
    paid = [PAID_AS.get(op, family) for op, family in zip(calls["op_name"], calls["family"], strict=True)]
    return pd.Series(paid, calls.index, dtype=object)


def op_counts(calls: pd.DataFrame) -> np.ndarray:
    """Counts of calls."""
    rows = zip(*(_known(calls[name]) for name in KEYS if name not in ("dtype", "family")), strict=True)
    result = [_counts(str(op), dims, str(family), *numbers)
              for (op, dims, *numbers), family in zip(rows, paid_families(calls), strict=True)]  # fmt: skip
    return np.array(result, dtype=float).reshape(len(calls), len(COUNTS))


def _known(column: pd.Series) -> list[Any]:
    """[n] values, None where unknown."""
    values = column.astype(object).to_numpy(copy=True)
    values[pd.isna(values)] = None
    return values.tolist()


@lru_cache(maxsize=1 << 16)
def _counts(
    op: str, dims: str | None, family: str, flops: float | None, moved: float | None, between: float | None
) -> tuple[float, ...]:
    if flops is None and moved is None:
        return (float("nan"),) * len(COUNTS)
    shapes = tuple(json.loads(dims)) if dims else ()
    call = Call(op.rpartition("::")[2], shapes, flops or 0.0, moved or 0.0)
    cold = out_of_range(between or 0.0, OWN_CACHE_BYTES, OWN_SHARPNESS)
    result = {"cold_call": cold, **BY_FAMILY.get(family, streamed)(call)}
    return tuple(result.get(name, 0.0) for name in COUNTS)


def _product(call: Call) -> Counts:
    in_steps = recurrent(call)
    if in_steps is not None:
        return in_steps
    sizes = product_sizes(call)
    if sizes is None:
        return streamed(call)
    b, m, n, k = sizes
    return {"call": 1.0, "product": max(b - 1.0, 0.0), "row": b * m, "flop": 2.0 * b * m * n * k, "left": b * m * k,
            "right": b * k * n, "result": b * m * n, "far_byte": far_bytes(call)}  # fmt: skip


def product_sizes(call: Call) -> tuple[float, float, float, float] | None:
    """(batch, m, n, k) of a product; None where the recorded shapes are none."""
    first = 1 if call.op in ("addmm", "baddbmm") else 0
    if len(call.dims) < first + 2 or not all(is_shape(d) for d in call.dims[first : first + 2]):
        return None
    left, right = call.dims[first], call.dims[first + 1]
    if call.op == "linear":
        return 1.0, float(prod(left[:-1])), float(prod(right[:-1])), float(left[-1])
    if call.op == "_grouped_mm":
        try:
            return grouped_size([dims for dims in call.dims[:3] if is_shape(dims)])
        except UnknownCost:
            return None
    if len(right) > 2 and len(left) > 1:
        return float(prod(right[:-2])), float(left[-2]), float(right[-1]), float(left[-1])
    columns = right[-1] if len(right) > 1 else 1
    return 1.0, float(prod(left[:-1])), float(columns), float(left[-1])


# Convolutions: channels that fill vectors run at the rate of products; the rest goes at the rate of single lanes.
#
#     1x1 filters, few images          one product per image: slow for fewer pixels than lanes
#     depthwise                        by vectors; plane by plane where the filter hangs over the image
#     groups narrower than a vector    single lanes, which the missing channels leave idle
#     gradient of a stride             of groups or volumes: the input's gradient goes by single lanes


def _convolution(call: Call) -> Counts:
    counts, is_backward = dict(streamed(call)), "backward" in call.op
    shapes = [*call.dims[is_backward : is_backward + 2], *call.dims[:is_backward]]  # images, weight, their gradient
    if len(shapes) < 2 + is_backward or not all(is_shape(s) and len(s) > 2 for s in shapes) or not prod(shapes[1]):
        return counts
    image, weight = shapes[:2]
    (out, into), taps, result = weight[:2], prod(weight[2:]), shapes[-1]
    is_transposed = "transpose" in call.op or (is_backward and result[1] != out)
    groups = 1 if is_transposed else max(image[1] // into, 1)
    of_pixel = 2.0 * max(image[0], 1) * prod(weight)  # FLOPs of a pixel in all images, one pass
    pixels = min(prod(result[2:]), prod(image[2:])) if is_backward else call.flops / of_pixel
    one_pass, is_strided = min(of_pixel * pixels, call.flops), not is_transposed and pixels < prod(image[2:])
    if taps == 1 and groups == 1 and image[0] < FEW_IMAGES and not is_strided:
        lanes = one_pass if pixels < LANES else 0.0
        return {**counts, "flop": call.flops - lanes, "lane_flop": lanes}
    counts |= {"tensor": 1.0, "right": float(prod(weight))}  # set up, weights brought into order
    if into == 1 and groups > 1:
        hindrances = is_backward + (taps > SMALL_FILTER) + (pixels < SMALL_FILTER if is_backward else pixels <= 1)
        rows = float(image[0] * groups * weight[-1])  # of filters, plane by plane
        return {**counts, "flop": 0.0, "lane_flop": call.flops, "product": rows} if hindrances > 1 else counts
    if groups > 1 and into < LANES:
        return {**counts, "flop": 0.0, "lane_flop": call.flops * LANES / into}
    blocks = _blocked(out // groups) * groups / out
    if groups == 1:
        blocks *= (_blocked(into) if into > FEW_CHANNELS else FEW_CHANNELS) / into
    lanes = one_pass if is_backward and is_strided and (groups > 1 or len(weight) > VOLUME) else 0.0
    return {**counts, "flop": (call.flops - lanes) * blocks, "lane_flop": lanes}


def _blocked(channels: int) -> int:
    return -(-channels // CHANNEL_BLOCK) * CHANNEL_BLOCK


def _drawn(call: Call) -> Counts:
    """Numbers come from a generator one by one (Mersenne twister), which takes ten times as long as writing them."""
    return {"call": 1.0, "draw": call.flops / DRAW_FLOPS, "far_byte": far_bytes(call)}


def _attention(call: Call) -> Counts:
    """Products per head of all pairs: masks spare whole blocks of keys only. Dropout splits it, and draws numbers."""
    is_backward = "backward" in call.op
    counts, shapes = dict(streamed(call)), call.dims[is_backward : is_backward + 3]
    if len(shapes) < 3 or not all(map(is_shape, shapes)) or min(map(len, shapes)) < 3:
        return counts
    q, k, v = shapes
    width = 3 * q[-1] + 2 * v[-1] if is_backward else q[-1] + v[-1]
    products = 2.0 * prod(q[:-1]) * k[-2] * width
    spared = max(products - call.flops, 0.0) * max(1.0 - BLOCK_KEYS / max(k[-2], 1), 0.0)
    drawn = max(call.flops - products, 0.0) / DRAW_FLOPS
    return {**counts, "flop": products - spared, "product": float(prod(q[:-2])), "draw": drawn,
            "tensor": SPLIT_CALLS if drawn else 0.0}  # fmt: skip


def _elementwise(call: Call) -> Counts:
    """A sweep; a number as second operand is made a tensor first."""
    return {**streamed(call), "tensor": float(len(call.dims) > 1 and call.dims[1] == [])}


def _update(call: Call) -> Counts:
    first = call.dims[0] if call.dims else []
    return {**streamed(call), "tensor": float(len(first)) if first and isinstance(first[0], list) else 1.0}


def _indexed(call: Call) -> Counts:
    """Elements that are looked up one by one, next to what is moved."""
    return {**streamed(call), "element": float(max((prod(d) for d in call.dims if is_shape(d)), default=0))}


BY_FAMILY: Mapping[str, Callable[[Call], Counts]] = {
    OpFamily.GEMM: _product, OpFamily.CONV: _convolution, OpFamily.EMBEDDING: lookup, OpFamily.OPTIMIZER: _update,
    OpFamily.RANDOM: _drawn, OpFamily.SOFTMAX: softmax, OpFamily.NORM: norm, OpFamily.INDEXING: _indexed,
    OpFamily.REDUCTION: reduction, OpFamily.ATTENTION: _attention, OpFamily.ELEMENTWISE: _elementwise,
}  # fmt: skip


def between_bytes(nodes: pd.DataFrame) -> np.ndarray:
    """[n] bytes that the thread of each op moved since the end of its last call of that op: how cold the op is.

    The code and the tables of an op leave a core's own caches as other work goes through them, so a small op costs 1 us
    where it runs again at once (an optimizer's loop over small weights), and 8 us where megabytes were moved between.

        add_ |mul_| add_ |== mm, 4 MB ==| add_
                   ^ next to nothing     ^ 4 MB in between

    A window stands for a run: what comes before the first call of an op is what follows its last one.
    """
    moved = nodes["bytes"].fillna(0.0)  # [n]
    lanes = [nodes[name].to_numpy() for name in LANE]
    lane, op = combined(lanes), combined([*lanes, pd.factorize(nodes["op_name"])[0]])  # [n] each
    end = moved.groupby(lane).cumsum()  # [n] bytes moved up to the end of each op
    ends = end.groupby(op)
    whole = moved.groupby(lane).transform("sum")
    last_end = ends.shift().fillna(ends.transform("last") - whole)  # of the window before, where there is none
    return (end - moved - last_end).clip(lower=0.0).to_numpy(float)
