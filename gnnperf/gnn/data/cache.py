"""Graphs on disk, under a name made of everything they depend on. Plain tensors only: nothing is unpickled."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch_geometric.data import HeteroData

from gnnperf.core import write_bytes

PACKAGE = Path(__file__).resolve().parents[2]
_SOURCES = ("core", "hardware", "graph", "analytic", "gnn/data")


@cache
def code_of(*sources: str, package: Path = PACKAGE) -> str:
    """Hash of the source of packages and modules, named by their paths in `package`."""
    digest = hashlib.sha256()
    for name in sources:
        path = package / name
        assert path.exists(), f"{path} was moved"
        for source in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def code_fingerprint() -> str:
    """Hash of the source of all packages that features depend on."""
    return f"{torch.__version__} {code_of(*_SOURCES)}"


def fingerprint(*parts: object) -> str:
    """Hash of the code and of the representation of `parts`."""
    digest = hashlib.sha256(code_fingerprint().encode())
    for part in parts:
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()[:32]


def cached_graphs(folder: Path, key: str, build: Callable[[], list[HeteroData]]) -> list[HeteroData]:
    """The graphs stored as `key`, or those that `build` makes; a file that cannot be read is made anew."""
    path = folder / "features" / f"{key}.pt"
    if path.is_file():
        with suppress(Exception):  # a damaged file can fail anywhere in torch's reader
            return [HeteroData.from_dict(d) for d in torch.load(path, weights_only=True, map_location="cpu")]
    graphs = build()
    path.parent.mkdir(parents=True, exist_ok=True)
    held = io.BytesIO()
    torch.save([g.to_dict() for g in graphs], held)
    write_bytes(path, held.getvalue())
    return graphs
