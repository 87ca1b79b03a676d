"""Norms and softmax: rows and columns from shapes, then `gnnperf.analytic.normalization.model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, sized
from gnnperf.analytic.normalization.model import layer_norm_backward_us, layer_norm_us, softmax_us
from gnnperf.graph import UnknownCost

RowForm = Callable[[Array, Array, int, Setting], Array]  # rows, columns, bytes of an element


def _layer_norm(rows: Array, columns: Array, item: int, on: Setting) -> Array:
    return layer_norm_us(rows, columns, item, on.device, on.memory)


def _layer_norm_backward(rows: Array, columns: Array, item: int, on: Setting) -> Array:
    return layer_norm_backward_us(rows, columns, item, on.device, on.memory)


def _softmax(rows: Array, columns: Array, item: int, on: Setting) -> Array:
    return softmax_us(rows, columns, item, on.device, on.memory)


def _softmax_backward(rows: Array, columns: Array, item: int, on: Setting) -> Array:
    return softmax_us(rows, columns, item, on.device, on.memory, backward=True)


# op -> form, argument of the activation, argument of the scale (its elements are a row); None: the last axis is
FORMS: Mapping[str, tuple[RowForm, int, int | None]] = {
    "aten::native_layer_norm": (_layer_norm, 0, 2),
    "aten::layer_norm": (_layer_norm, 0, 2),
    "aten::rms_norm": (_layer_norm, 0, 2),
    "aten::_fused_rms_norm": (_layer_norm, 0, 2),
    "aten::native_layer_norm_backward": (_layer_norm_backward, 1, 5),
    "aten::_fused_rms_norm_backward": (_layer_norm_backward, 1, 4),
    **{f"aten::{name}": (_softmax, 0, None)
       for name in ("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax")},
    **{f"aten::{name}": (_softmax_backward, 1, None)
       for name in ("_softmax_backward_data", "_log_softmax_backward_data")},
}  # fmt: skip


def rows_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us; NaN: another op (batch and group norms), or shapes not recorded.

    Softmax is taken to run over the last axis; the axis is not on a node.
    """
    sizes = sized(calls, _rows_and_columns, 2)
    result = np.full(len(calls), np.nan)
    kinds = [(FORMS[c.plain_name][0], c.item_bytes) if c.plain_name in FORMS else None for c in calls]
    for kind in {k for k in kinds if k is not None}:
        same = np.array([k == kind for k in kinds])
        rows = np.intersect1d(known_rows(sizes), np.flatnonzero(same))
        form, item = kind
        result[rows] = form(sizes[rows, 0], sizes[rows, 1], item, setting)
    return result


def _rows_and_columns(call: KernelCall) -> tuple[float, float]:
    if call.plain_name not in FORMS:
        raise UnknownCost
    _, activation, scale = FORMS[call.plain_name]
    parsed = call.parsed()
    x = parsed.tensor(activation)
    columns = x.shape[-1]
    if scale is not None and (result := parsed.optional(scale)) is not None:
        columns = result.numel
    if not columns or x.numel % columns:
        raise UnknownCost
    return float(x.numel // columns), float(columns)
