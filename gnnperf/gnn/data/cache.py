"""Hashes of code and of content, and graphs on disk by such a hash.

Graphs are tensors and JSON. torch.load(weights_only=True) reads them: it unpickles no types but tensors and plain ones.
"""

import hashlib
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sized
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import HeteroData

from gnnperf.core import code_of, write_bytes
from gnnperf.hardware import conf_dir

_SOURCES = ("core", "hardware", "trace", "graph", "schedule", "analytic", "gnn/data")
_CATALOGS = ("hardware", "link", "host", "cluster", "analytic")


@cache
def code_fingerprint() -> str:
    """Hash of what features depend on next to their inputs: source of packages, constants and catalogs, libraries."""
    files = [file for group in _CATALOGS for file in sorted(conf_dir(group).rglob("*.yaml"))]
    contents = [(file.name, file.read_bytes()) for file in files]
    return content_digest(code_of(*_SOURCES), contents, [one.__version__ for one in (torch, np, pd)])


def fingerprint(*parts: object) -> str:
    """Hash of the code and of the representation of `parts`."""
    digest = hashlib.sha256(code_fingerprint().encode())
    for part in parts:
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()[:32]


def cached_graph(path: Path, build: Callable[[], HeteroData]) -> HeteroData:
    """The graph in a file, or the one that `build` makes; a file that cannot be read is made anew."""
    if path.is_file():
        with suppress(Exception):  # a damaged file can fail anywhere in torch's reader
            return read_graph(path)
    graph = build()
    path.parent.mkdir(parents=True, exist_ok=True)
    held = io.BytesIO()
    torch.save(packed(graph), held)
    write_bytes(path, held.getvalue())
    return graph


def read_graph(path: Path) -> HeteroData:
    """The graph in a file, whose tensors are mapped into memory."""
    stored = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    result, end = dict[Any, dict[str, Any]](), dict.fromkeys(stored, 0)
    for key, name, dtype, value in json.loads(stored["layout"]):
        if dtype:  # `value` is its shape
            begin, end[dtype] = end[dtype], end[dtype] + math.prod(value)
            value = stored[dtype][begin : end[dtype]].view(value)
        result.setdefault(tuple(key) if isinstance(key, list) else key, {})[name] = value
    return HeteroData.from_dict(result)


def packed(graph: HeteroData) -> dict[str, str | torch.Tensor]:
    """One tensor per dtype: readers and hashes take longer for the two hundred of a graph than training on it does."""
    flat, layout = defaultdict[str, list[torch.Tensor]](list), []
    for key, store in graph.to_dict().items():
        for name, value in store.items():
            if isinstance(value, torch.Tensor):
                flat[str(value.dtype)].append(value.flatten())
                layout.append((key, name, str(value.dtype), list(value.shape)))
            else:
                layout.append((key, name, "", value))
    return {"layout": json.dumps(layout), **{dtype: torch.cat(values) for dtype, values in flat.items()}}


def content_digest(*parts: object) -> str:
    """Hash of arrays, tensors, tables, mappings, sequences and dataclasses of these, down to their bytes.

    Anything else counts by its representation. The order of a mapping counts, the order of a column's categories
    does not. Sums of floats differ in their last bits with the number of threads, and so do data that were normalized
    by them.
    """
    digest = hashlib.sha256()
    _add(digest, parts)
    return digest.hexdigest()[:32]


def _add(digest: "hashlib._Hash", value: object) -> None:
    """Type and length come first, so that a list is not taken for the elements next to it."""
    digest.update(f"{type(value).__name__} {len(value) if isinstance(value, Sized) else 0} ".encode())
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy(force=True)
    if is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    match value:
        case str():  # the most frequent one first: graphs have hundreds of names
            digest.update(repr(value).encode())
        case np.ndarray() if value.dtype != object:
            digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        case pd.Series():
            digest.update(("category" if isinstance(value.dtype, pd.CategoricalDtype) else str(value.dtype)).encode())
            is_extension = isinstance(value.dtype, pd.api.extensions.ExtensionDtype)
            digest.update(pd.util.hash_array(value.array if is_extension else value.to_numpy()).tobytes())
        case pd.DataFrame() | Mapping():
            for item in value.items():
                _add(digest, item)
        case list() | tuple() | np.ndarray() if all(type(one) is str for one in value):  # a word per node, at once
            digest.update("".join(f"str {len(one)} {one!r}" for one in value).encode())
        case list() | tuple() | np.ndarray():
            for one in value:
                _add(digest, one)
        case set() | frozenset():
            raise TypeError("a set has another order in every process: sort it")
        case _:
            digest.update(repr(value).encode())
