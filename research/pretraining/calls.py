"""Op calls of traces as rows of op tables: the same product or convolution, whatever op multiplied it.

    aten::addmm, mm, linear, matmul, ...     [m, k] x [k, n]        ->  aten::linear [m, k], [n, k]
    aten::bmm, baddbmm                       batch of them          ->  aten::bmm
    aten::cudnn_convolution, conv2d, ...     forward, square        ->  aten::conv2d

Rows have the columns of research.tables; nothing measured is in them. Torch is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic.convolution.calls import WIDTH, convolution_size, passes
from gnnperf.analytic.convolution.model import ConvolutionPass, Convolutions
from gnnperf.analytic.gemm.calls import has_rate, plain_dtype, product_size
from gnnperf.analytic.gemm.model import rate_key
from gnnperf.analytic.kernels.call import KernelCall, known_rows, sized
from gnnperf.hardware import DeviceSpec
from research.pretraining.rows import (
    BATCHED_PRODUCTS,
    CONVOLUTIONS,
    MATRIX_PRODUCTS,
    PRODUCTS,
    Kind,
    convolves_in_tf32,
)
from research.tables.columns import completed, convolution_columns, product_columns

KIND = "kind"
FORWARD = (ConvolutionPass.FORWARD,)
DENSE = 0.99  # of the FLOPs that a product's sizes take; fewer mean a sparse operand, which has kernels of its own
Sizes = np.ndarray


@dataclass(frozen=True)
class CallRows:
    """Rows of the calls that have a kind.

    Attributes:
        rows: [n] columns of research.tables and `kind`; device and latency as of none.
        places: [n] which call each row is.
    """

    rows: pd.DataFrame
    places: np.ndarray


def rows_of_calls(calls: Sequence[KernelCall], device: DeviceSpec) -> CallRows:
    """The calls that are of one of KINDS on this device, as rows of the table that tells them."""
    multiplied, products = _product_sizes(calls)
    batched = products[:, 0] > 1  # [num_products]
    parts = [
        _products(MATRIX_PRODUCTS, multiplied[~batched], products[~batched], calls, device),
        _products(PRODUCTS, multiplied[~batched], products[~batched], calls, device),
        _products(BATCHED_PRODUCTS, multiplied[batched], products[batched], calls, device),
        _convolutions(calls, device),
    ]
    rows = pd.concat([part.rows for part in parts], ignore_index=True)
    return CallRows(rows.assign(device=device.name), np.concatenate([part.places for part in parts]))


def _product_sizes(calls: Sequence[KernelCall]) -> tuple[np.ndarray, Sizes]:
    """Which calls are dense products, and [num_products, 4] batch, m, n, k."""
    sizes = sized(calls, product_size, 4)  # [num_calls, 4]
    flops = np.array([call.flops for call in calls], float)
    plain = np.array([not call.tf32 for call in calls], bool)
    whole = 2.0 * sizes.prod(axis=1)
    dense = (whole > 0) & (flops >= DENSE * whole) & plain  # [num_calls]; NaN is not
    places = np.flatnonzero(dense)
    return places, sizes[places]


def _products(
    kind: Kind, places: np.ndarray, sizes: Sizes, calls: Sequence[KernelCall], device: DeviceSpec
) -> CallRows:
    same = np.array([plain_dtype(calls[place].known_dtype) == kind.dtype for place in places], bool)
    if not has_rate(device, kind.dtype) or rate_key(device, kind.dtype).endswith("_matrix") != (
        kind.dtype != "float32"
    ):
        same[:] = False
    batch, m, n, k = sizes[same].T
    return _rows(kind, product_columns(kind.op, m, n, k, kind.dtype, batch), places[same])


def _convolutions(calls: Sequence[KernelCall], device: DeviceSpec) -> CallRows:
    """Square ones in one group, on lanes: where convolutions may use TF32, they do, and the tables did not."""
    places = np.array([place for place, call in enumerate(calls)
                       if passes(call) == FORWARD and call.known_dtype == CONVOLUTIONS.dtype], np.intp)  # fmt: skip
    sizes = sized([calls[place] for place in places], convolution_size, WIDTH)
    result = Convolutions(*sizes[known_rows(sizes)].T)
    square = (
        (result.in_height == result.in_width) & (result.window_height == result.window_width) & (result.groups == 1)
    )
    square &= result.out_height == result.out_width
    square &= not convolves_in_tf32(device)
    n, c, k, edge, _, window, _, out, _, stride, _ = sizes[known_rows(sizes)][square].T
    padding = np.maximum(np.ceil(((out - 1) * stride + window - edge) / 2), 0.0)
    size = {"batch": n, "in_channels": c, "out_channels": k, "kernel": window, "in_size": edge, "stride": stride,
            "padding": padding}  # fmt: skip
    return _rows(CONVOLUTIONS, convolution_columns(size, CONVOLUTIONS.dtype), places[known_rows(sizes)][square])


def _rows(kind: Kind, columns: dict[str, object], places: np.ndarray) -> CallRows:
    how = {"direction": "forward", "tf32": False, "cache": "warm", "launch_included": kind.launch_included,
           "source": kind.source, "table": kind.table, "method": kind.method, "device": ""}  # fmt: skip
    return CallRows(completed({**columns, **how}, len(places)).assign(kind=kind.name), places)
