"""Hashes of content, and graphs on disk by such a hash. Plain tensors only: nothing is unpickled."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sized
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import HeteroData

from gnnperf.core import code_of, write_bytes

COUNT = "count"  # file with the number of graphs
_SOURCES = ("core", "hardware", "graph", "analytic", "gnn/data")


def code_fingerprint() -> str:
    """Hash of the source of all packages that features depend on."""
    return f"{torch.__version__} {code_of(*_SOURCES)}"


def fingerprint(*parts: object) -> str:
    """Hash of the code and of the representation of `parts`."""
    digest = hashlib.sha256(code_fingerprint().encode())
    for part in parts:
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()[:32]


def stored_graphs(folder: Path, key: str, build: Callable[[], Iterable[HeteroData]]) -> list[Path]:
    """The files of graphs stored as `key`, or of those that `build` makes; files that cannot be read are made anew."""
    folder = folder / "features" / key
    with suppress(Exception):  # a damaged file can fail anywhere in torch's reader
        paths = [folder / f"{number}.pt" for number in range(int((folder / COUNT).read_text()))]
        if all(read_graph(path) for path in paths):
            return paths
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, graph in enumerate(build()):
        held = io.BytesIO()
        torch.save(graph.to_dict(), held)
        paths.append(folder / f"{number}.pt")
        write_bytes(paths[-1], held.getvalue())
    write_bytes(folder / COUNT, str(len(paths)).encode())  # last: it states that all are there
    return paths


def read_graph(path: Path) -> HeteroData:
    """A stored graph, whose tensors are mapped into memory."""
    return HeteroData.from_dict(torch.load(path, weights_only=True, map_location="cpu", mmap=True))


class Listed(list[Any]):
    """Counts as the list of a function's results, of which one at a time is in memory."""

    def __init__(self, items: Iterable[object], function: Callable[[Any], object]) -> None:
        super().__init__(items)
        self.function = function


def content_digest(*parts: object) -> str:
    """Hash of arrays, tensors, tables, mappings, sequences and dataclasses of these, down to their bytes.

    Anything else counts by its representation. The order of a mapping counts, the order of a column's categories
    does not. Sums of floats differ in their last bits with the number of threads, and so do data that were normalized
    by them.
    """
    digest = hashlib.sha256()
    _add(digest, parts)
    return digest.hexdigest()[:32]


def _add(digest: hashlib._Hash, value: object) -> None:
    """Type and length come first, so that a list is not taken for the elements next to it."""
    name = "list" if isinstance(value, Listed) else type(value).__name__
    digest.update(f"{name} {len(value) if isinstance(value, Sized) else 0} ".encode())
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy(force=True)
    if is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    match value:
        case np.ndarray() if value.dtype != object:
            digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        case pd.Series():
            digest.update(("category" if isinstance(value.dtype, pd.CategoricalDtype) else str(value.dtype)).encode())
            digest.update(pd.util.hash_pandas_object(value, index=False).to_numpy().tobytes())
        case pd.DataFrame() | Mapping():
            for item in value.items():
                _add(digest, item)
        case list() | tuple() | np.ndarray():
            for one in map(value.function, value) if isinstance(value, Listed) else value:
                _add(digest, one)
        case set() | frozenset():
            raise TypeError("a set has another order in every process: sort it")
        case _:
            digest.update(repr(value).encode())
