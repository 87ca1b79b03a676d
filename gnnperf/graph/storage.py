"""Graphs as Parquet (nodes, edges; the rest as JSON inside the nodes file), cached by a fingerprint of code and inputs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import gnnperf
from gnnperf.errors import InputError
from gnnperf.graph.build import build_graph
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.schema import EDGE_COLUMNS, NODE_COLUMNS, Column
from gnnperf.trace import read_run

_META_KEY = b"gnnperf.graph"


def load_graph(paths: Path | Sequence[Path], cache_dir: Path | None = None) -> ExecutionGraph:
    """Import a run and build its graph, or take it from the cache.

    Args:
        paths: trace file, directory, archive, saved TraceTables, or several of them of one run.
        cache_dir: where graphs are kept; None builds anew.

    Raises:
        InputError: the input cannot be read.
    """
    inputs = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    key = fingerprint(inputs)
    cached = cache_dir / key if cache_dir else None
    if cached and (cached / "nodes.parquet").exists():
        return read_graph(cached)
    graph = replace(build_graph(read_run(inputs if len(inputs) > 1 else inputs[0])), fingerprint=key)
    if cached:
        write_graph(graph, cached)
    return graph


def fingerprint(inputs: Sequence[Path]) -> str:
    """Hash of the importing and graph-building code and of the content of every input file."""
    digest = hashlib.sha256(_code_hash().encode())
    for path in inputs:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            digest.update(file.name.encode())
            digest.update(_file_hash(file).encode())
    return digest.hexdigest()[:24]


@cache
def _code_hash() -> str:
    root = Path(gnnperf.__file__).parent
    sources = [root / "schema.py", *sorted((root / "trace").rglob("*.py")), *sorted((root / "graph").rglob("*.py"))]
    digest = hashlib.sha256(gnnperf.__version__.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _file_hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", where=str(path), remedy="check the path and its permissions"
        ) from error


def write_graph(graph: ExecutionGraph, directory: Path) -> None:
    """Write a graph directory beside and rename it into place.

    Raises:
        InputError: the directory cannot be written.
    """
    meta = {
        f: getattr(graph, f)
        for f in ("name", "ranks", "world_size", "device_names", "counts", "warnings", "fingerprint")
    }
    meta["steps"] = [asdict(s) for s in graph.steps]
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            _write(graph.nodes, beside / "nodes.parquet", json.dumps(meta))
            _write(graph.edges, beside / "edges.parquet", "{}")
            _swap(beside, directory)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror})", where=str(directory), remedy="choose a writable place with room"
        ) from error


def _swap(beside: Path, directory: Path) -> None:
    """Put a finished directory in place of an earlier one."""
    if directory.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{directory.name}.old.", dir=directory.parent))
        os.replace(directory, old / "old")
        os.replace(beside, directory)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(beside, directory)


def _write(frame: pd.DataFrame, path: Path, meta: str) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _META_KEY: meta.encode()})
    pq.write_table(table, path, compression="zstd")


def read_graph(directory: Path) -> ExecutionGraph:
    """Read what write_graph wrote.

    Raises:
        InputError: a file is missing or not a graph.
    """
    try:
        table = pq.read_table(directory / "nodes.parquet")
        edges = pq.read_table(directory / "edges.parquet").to_pandas()
        meta = json.loads((table.schema.metadata or {})[_META_KEY])
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise InputError(
            "is not a graph directory of gnnperf", where=str(directory), remedy="import the trace again"
        ) from error
    steps = tuple(
        StepLabel(**{k: tuple(v) if isinstance(v, list) else v for k, v in s.items()}) for s in meta.pop("steps")
    )
    meta = {k: tuple(v) if isinstance(v, list) else v for k, v in meta.items()}
    nodes = _typed(table.to_pandas(), NODE_COLUMNS)
    return ExecutionGraph(nodes=nodes, edges=_typed(edges, EDGE_COLUMNS), steps=steps, **meta).validate()


def _typed(frame: pd.DataFrame, columns: tuple[Column, ...]) -> pd.DataFrame:
    """Dtypes of the schema (an all-null category comes back as another dtype)."""
    wanted = {c.name: c.dtype for c in columns if c.name in frame and str(frame[c.name].dtype) != c.dtype}
    return frame.astype(wanted)
