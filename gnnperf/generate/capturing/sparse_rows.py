"""Sparse gradients of embedding tables: tensors without data forget how many rows they hold, so it is kept next to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_ROWS = "_gnnperf_rows"  # attribute of a sparse tensor without data: (rows, columns) of its values
_SUMS = (_aten.add_.Tensor, _aten.add.Tensor)
_FROM_LOOKUPS = {_aten._embedding_bag_backward.default: 1, _aten.embedding_sparse_backward.default: 1}  # -> its indices


def note(func: Any, args: Sequence[Any], result: Any) -> None:
    """Remember how many rows a sparse result holds: one per lookup, or as many as the tensor it is made from."""
    if not (isinstance(result, torch.Tensor) and result.layout == torch.sparse_coo):
        return
    place = _FROM_LOOKUPS.get(func)
    if place is not None:
        setattr(result, _ROWS, (args[place].numel(), args[0].shape[-1]))
        return
    known = [getattr(a, _ROWS) for a in args if isinstance(a, torch.Tensor) and hasattr(a, _ROWS)]
    if known:
        setattr(result, _ROWS, known[0])


def look_into(func: Any, args: Sequence[Any]) -> None:
    """What a real op does inside and its cost is read from: a sum counts the rows, a gradient gathers them."""
    if func in _SUMS and hasattr(args[1], _ROWS):
        _aten._nnz.default(args[1])
        values = torch.empty(getattr(args[1], _ROWS), dtype=args[1].dtype)
        _aten.to.dtype(values, args[1].dtype)
    if func is _aten._embedding_bag_backward.default:
        _aten.index_select.default(args[0], 0, args[1])  # one row per lookup
