"""What data hold, as one hash: equal data have an equal one, whatever version of the code made them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import singledispatch

import numpy as np
import pandas as pd
import torch


def content_digest(*parts: object) -> str:
    """Hash of arrays, tensors, tables, mappings, sequences and dataclasses of these, down to their bytes.

    Anything else counts by its representation. The order of a mapping counts, the order of a column's categories
    does not. Sums of floats differ in their last bits with the number of threads, and so do data that were normalized
    by them.

    Raises:
        TypeError: a set is among them.
    """
    return _hash(parts).hexdigest()[:32]


def _hash(value: object) -> hashlib._Hash:
    """Of one value; its type is part of it, so that a list is not taken for the elements next to it."""
    digest = hashlib.sha256(type(value).__name__.encode())
    for piece in _pieces(value):
        digest.update(piece)
    return digest


@singledispatch
def _pieces(value: object) -> list[bytes]:
    if is_dataclass(value):
        return [_hash((one.name, getattr(value, one.name))).digest() for one in fields(value)]
    return [repr(value).encode()]


@_pieces.register
def _of_array(value: np.ndarray) -> list[bytes]:
    if value.dtype == object:
        return [_hash(value.tolist()).digest()]
    return [f"{value.dtype}{value.shape}".encode(), value.tobytes()]


@_pieces.register
def _of_tensor(value: torch.Tensor) -> list[bytes]:
    return _of_array(value.detach().numpy(force=True))


@_pieces.register
def _of_table(value: pd.DataFrame) -> list[bytes]:
    return [_hash((name, *_column(value[name]))).digest() for name in value.columns]


def _column(values: pd.Series) -> tuple[str, np.ndarray]:
    kind = "category" if isinstance(values.dtype, pd.CategoricalDtype) else str(values.dtype)
    return kind, pd.util.hash_pandas_object(values, index=False).to_numpy()


@_pieces.register(Mapping)
def _of_mapping(value: Mapping[object, object]) -> list[bytes]:
    return [_hash(item).digest() for item in value.items()]


@_pieces.register(set)
@_pieces.register(frozenset)
def _of_set(value: object) -> list[bytes]:
    raise TypeError("a set has another order in every process: sort it")


@_pieces.register(list)
@_pieces.register(tuple)
def _of_sequence(value: list[object] | tuple[object, ...]) -> list[bytes]:
    return [_hash(one).digest() for one in value]
