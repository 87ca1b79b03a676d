"""What shapes tell: sizes of arguments, sizes of a matrix product, alignment. Each distinct text is read once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import Call, product_sizes
from gnnperf.core import OpFamily

NUM_DIMS, NUM_PRODUCT = 8, 5  # columns of each table
MAX_ALIGNMENT = 64.0
PRODUCTS = (str(OpFamily.GEMM),)


@dataclass(frozen=True)
class ShapeNumbers:
    """Of n nodes.

    Attributes:
        dims: [n, 8] log_num_inputs, max_dims, log_elements, log_largest, log_second, log_first_dim, log_last_dim,
            dims_unknown.
        product: [n, 5] batch, m, n, k as they are, 0 where there is no product; is_product.
        last_dim: [n] last dimension of the largest argument, 0 unknown.
    """

    dims: np.ndarray
    product: np.ndarray
    last_dim: np.ndarray


def shape_numbers(nodes: pd.DataFrame) -> ShapeNumbers:
    """Numbers of the shapes of nodes (columns op_name, family, input_dims)."""
    texts, rows = pd.factorize(nodes["input_dims"], use_na_sentinel=True)[::-1]
    dims = np.asarray([*(_dim_row(t) for t in texts), _dim_row(None)], dtype=np.float64)  # [num_distinct + 1, 9]
    found = dims[rows]  # the last row for null
    return ShapeNumbers(found[:, :NUM_DIMS], _products(nodes), found[:, NUM_DIMS])


def alignment(sizes: np.ndarray) -> np.ndarray:
    """log2 of the largest power of two up to MAX_ALIGNMENT that divides whole numbers, same shape; 0 for 0."""
    whole = np.asarray(sizes, dtype=np.int64)
    lowest = np.where(whole > 0, whole & -whole, 1).astype(np.float64)
    return np.log2(np.minimum(lowest, MAX_ALIGNMENT))


def _products(nodes: pd.DataFrame) -> np.ndarray:
    """[n, 5] batch, m, n, k, is_product."""
    found = np.zeros((len(nodes), NUM_PRODUCT))
    rows = np.flatnonzero(nodes["family"].isin(PRODUCTS).to_numpy())
    calls = list(zip(nodes["op_name"].astype(object).iloc[rows], nodes["input_dims"].astype(object).iloc[rows],
                     strict=True))  # fmt: skip
    known = {call: _product_row(*call) for call in set(calls)}
    for row, call in zip(rows, calls, strict=True):
        found[row] = known[call]
    return found


def _product_row(op: object, text: object) -> tuple[float, ...]:
    arguments = _arguments(text if isinstance(text, str) else None)
    if arguments is None:
        return (0.0,) * NUM_PRODUCT
    dims = tuple(_tensor(argument) for argument in arguments)
    sizes = product_sizes(Call(str(op).rpartition("::")[2], dims, 0.0, 0.0))
    return (0.0,) * NUM_PRODUCT if sizes is None else (*sizes, 1.0)


def _tensor(argument: object) -> list[int]:
    """Shape of one tensor; [] for whatever else a trace may hold there."""
    if not isinstance(argument, list) or not all(isinstance(size, int) for size in argument):
        return []
    return [max(size, 0) for size in argument]


def _dim_row(text: str | None) -> list[float]:
    arguments = _arguments(text)
    if arguments is None:
        return [0.0] * (NUM_DIMS - 1) + [1.0, 0.0]
    shapes = _flatten(arguments)
    elements = [float(np.prod(s, dtype=np.float64)) for s in shapes] or [0.0]
    largest = shapes[int(np.argmax(elements))] if shapes else []
    ordered = sorted(elements, reverse=True)
    second = ordered[1] if len(ordered) > 1 else 0.0
    first, last = (largest[0], largest[-1]) if largest else (0, 0)
    logs = np.log1p([float(len(shapes)), sum(elements), ordered[0], second, float(first), float(last)])
    return [logs[0], float(max(map(len, shapes), default=0)), *logs[1:], 0.0, float(last)]


def _arguments(text: str | None) -> list[Any] | None:
    """A JSON list of arguments; None: not said, or unreadable."""
    try:
        arguments = json.loads(text) if text else None
    except ValueError:
        return None
    return arguments if isinstance(arguments, list) else None


def _flatten(arguments: list[Any]) -> list[list[int]]:
    """Tensor shapes; tensor lists are opened, scalars ([]) dropped."""
    if arguments and all(isinstance(a, int) for a in arguments):
        return [[max(int(a), 0) for a in arguments if isinstance(a, int)]]
    return [shape for a in arguments if isinstance(a, list) for shape in _flatten(a)]
