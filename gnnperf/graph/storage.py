"""Graphs as Parquet (nodes, edges; the rest as JSON inside the nodes file), cached by fingerprint."""

import hashlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import gnnperf
from gnnperf import core
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel, TableCounts
from gnnperf.hardware import Placement
from gnnperf.trace import EVERYTHING, RunTrace, Selection, is_regular, run_name

FILES = ("nodes.parquet", "edges.parquet")
_META_KEY = b"gnnperf.graph"
_SOURCES = ("core/schema", "hardware", "trace", "graph")  # which a graph depends on


@dataclass(frozen=True)
class _Meta:
    """What an ExecutionGraph is next to its tables; the names are those of its attributes."""

    name: str
    steps: tuple[StepLabel, ...]
    ranks: tuple[int, ...]
    world_size: int
    device_names: tuple[str, ...]
    placement: Placement | None
    counts: dict[str, int] | None
    warnings: tuple[str, ...]
    fingerprint: str
    tables: tuple[TableCounts, ...] = ()
    stands_for: tuple[int, ...] = ()


def load_graph(
    paths: Path | Sequence[Path], cache_dir: Path | None = None, recording: int | None = None,
    chosen: Selection = EVERYTHING, meanwhile: ExitStack | None = None,
) -> ExecutionGraph:  # fmt: skip
    """Import a run and build its graph, or take it from the cache.

    Args:
        paths: trace file, directory, archive, saved TraceTables, or several of them of one run.
        cache_dir: where graphs are kept; None builds anew.
        recording: which one of several in a folder, from 1.
        chosen: ranks and steps.
        meanwhile: until it ends, a copy of this process may put a large graph into the cache.

    Raises:
        InputError: the input cannot be read.
    """
    inputs = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    key = fingerprint(inputs, recording, chosen)
    cached = cache_dir / key if cache_dir else None
    if cached and (cached / "nodes.parquet").exists():
        return read_graph(cached)
    from gnnperf.graph.build import build_graph  # a graph in the cache needs neither this nor the reader

    graph = replace(build_graph(load_run(tuple(inputs), recording, chosen, key)), fingerprint=key)
    if cached and meanwhile is not None and graph.num_nodes >= core.MANY_ROWS and core.copyable_cores() > 1:
        remarks = meanwhile.enter_context(core.in_copy(partial(_cache, graph, cached)))

        @meanwhile.callback
        def complain() -> None:
            for remark in remarks():
                core.complain("gnnperf", remark)

    elif cached:
        return replace(graph, warnings=(*graph.warnings, *_cache(graph, cached)))
    return graph


def _cache(graph: ExecutionGraph, directory: Path) -> tuple[str, ...]:
    """Write it; what prevented that, if anything did."""
    try:
        write_graph(graph, directory)
    except core.InputError as error:
        return (f"the graph is not cached: {error.what}",)
    return ()


@lru_cache(maxsize=1)
def load_run(paths: tuple[Path, ...], recording: int | None, chosen: Selection, key: str) -> RunTrace:
    """The traces of a graph with this fingerprint as `key`, read once for it and for `load_step`."""
    from gnnperf.trace import read_run

    return read_run(list(paths), recording=recording, chosen=chosen)


@lru_cache(maxsize=1)
def load_step(paths: tuple[Path, ...], recording: int | None, chosen: Selection, key: str, mark: str) -> RunTrace:
    """The events of the step with this mark, for what needs them after the graph; all others are freed."""
    from gnnperf.trace import of_step

    run = of_step(load_run(paths, recording, chosen, key), mark)
    free_run()
    return run


def free_run() -> None:
    """Free the traces of the last graph."""
    load_run.cache_clear()
    core.return_freed_memory()


def fingerprint(inputs: Sequence[Path], recording: int | None = None, chosen: Selection = EVERYTHING) -> str:
    """Hash of the importing and graph-building code, of the content of every input file and of what of it is read."""
    digest = hashlib.sha256(f"{gnnperf.__version__} {core.code_of(*_SOURCES)} {recording} {chosen}".encode())
    for path in inputs:
        digest.update(run_name(path).encode())
        for file in sorted(p for p in path.rglob("*") if is_regular(p, path)) if path.is_dir() else [path]:
            digest.update(file.name.encode())
            with core.untrusted.reading(file, remedy="check the path and its permissions"):
                digest.update(core.files.sha256(file).encode())
    return digest.hexdigest()[:24]


def write_graph(graph: ExecutionGraph, directory: Path) -> None:
    """Write a graph directory: all of it, or nothing is changed.

    Raises:
        InputError: the directory cannot be written, or is something else than an earlier graph.
    """
    core.files.refuse_foreign(directory, FILES)
    with core.replacing_folder(directory) as temporary:
        write_files(graph, temporary)


def write_files(graph: ExecutionGraph, folder: Path) -> None:
    """Write the files of a graph into an empty folder."""
    meta = _Meta(**{f.name: getattr(graph, f.name) for f in fields(_Meta)})
    with ThreadPoolExecutor(1) as other:
        edges = other.submit(_write, graph.edges, folder / "edges.parquet", b"{}")
        _write(graph.nodes, folder / "nodes.parquet", msgspec.json.encode(meta))
        edges.result()


def _write(frame: pd.DataFrame, path: Path, meta: bytes) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _META_KEY: meta})
    texts = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    # To find the few distinct values of numbers takes long, and there are many; nothing reads statistics.
    pq.write_table(table, path, compression="zstd", use_dictionary=texts, write_statistics=False)


def read_graph(directory: Path) -> ExecutionGraph:
    """Read what write_graph wrote.

    Raises:
        InputError: a file is missing or not a graph.
    """
    with core.untrusted.reading(directory, "is not a graph directory of gnnperf", remedy="import the trace again"):
        table = core.read_parquet(directory / "nodes.parquet")
        nodes = _typed(table.to_pandas(split_blocks=True), core.NODE_COLUMNS)
        edges = _typed(core.read_parquet(directory / "edges.parquet").to_pandas(split_blocks=True), core.EDGE_COLUMNS)
        meta = _read_meta((table.schema.metadata or {})[_META_KEY])
        attributes = {f.name: getattr(meta, f.name) for f in fields(_Meta)}
        return ExecutionGraph(nodes=nodes, edges=edges, **attributes).validate()


def _read_meta(content: bytes) -> _Meta:
    """The rest of a graph; JSON has null for the unknown times of steps that never ran."""
    plain = msgspec.json.decode(content, type=dict[str, Any])
    for step in plain["steps"]:
        for key, value in step.items():
            if isinstance(value, list):
                step[key] = [math.nan if one is None else one for one in value]
            elif value is None and key != "period_us":
                step[key] = math.nan
    return msgspec.convert(plain, _Meta)


def _typed(frame: pd.DataFrame, columns: tuple[core.Column, ...]) -> pd.DataFrame:
    """Dtypes of the schema (an all-null category comes back as another dtype); earlier files lack evidence columns."""
    dtypes = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
    for c in columns:  # each by itself: `assign` and `astype` of frames copy all columns
        if c.name in core.EVIDENCE_COLUMNS and c.name not in dtypes:
            frame[c.name] = pd.Series(None if c.dtype == "category" else -1, frame.index, c.dtype)
        elif dtypes.get(c.name, c.dtype) != c.dtype:
            frame[c.name] = frame[c.name].astype(c.dtype)  # type: ignore[call-overload]
        if c.dtype == "category" and c.name in frame and not core.schema.categories_of(frame[c.name]):
            frame[c.name] = core.schema.categorical(core.schema.codes_of(frame[c.name]), ())
    return frame
