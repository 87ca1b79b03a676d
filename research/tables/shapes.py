"""Shapes of many rows as JSON text, a column at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def shapes_json(tensors: Sequence[Sequence[npt.ArrayLike]]) -> npt.NDArray[np.object_]:
    """One JSON text per row, as `json.dumps` would write it.

    Args:
        tensors: per tensor argument its dimensions: [n] whole numbers each, or one number for all rows.

    Returns:
        [n] texts such as "[[2, 3], [3]]".
    """
    dims = [[np.atleast_1d(np.asarray(dim)).astype(np.int64) for dim in tensor] for tensor in tensors]
    num_rows = max((len(dim) for tensor in dims for dim in tensor), default=1)
    texts = [_tensor([_numbers(dim, num_rows) for dim in tensor], num_rows) for tensor in dims]
    return "[" + _separated(texts) + "]"


def dtypes_json(dtypes: Sequence[str]) -> str:
    """The dtypes of one row's tensors as JSON."""
    return json.dumps(list(dtypes))


def _tensor(dims: Sequence[npt.NDArray[np.object_]], num_rows: int) -> npt.NDArray[np.object_]:
    return "[" + _separated(dims) + "]" if dims else np.full(num_rows, "[]", object)


def _separated(texts: Sequence[npt.NDArray[np.object_]]) -> npt.NDArray[np.object_]:
    result = texts[0]
    for text in texts[1:]:
        result = result + ", " + text
    return result


def _numbers(values: npt.NDArray[np.int64], num_rows: int) -> npt.NDArray[np.object_]:
    """Each distinct number is written once: tables repeat few sizes often."""
    distinct, place = np.unique(values, return_inverse=True)
    written = np.array([str(v) for v in distinct.tolist()], object)
    return np.broadcast_to(written[place], (num_rows,))
