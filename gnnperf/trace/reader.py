"""read_run: files, directories, archives -> RunTrace."""

from __future__ import annotations

import hashlib
from pathlib import Path

from isal import igzip

from gnnperf.trace import kineto
from gnnperf.trace.importer import import_kineto
from gnnperf.trace.table import RunTrace


def read_run(path: Path | list[Path], *, name: str | None = None) -> RunTrace:
    paths = [Path(p) for p in (path if isinstance(path, list) else [path])]
    files = [f for p in paths for f in (sorted(p.rglob("*.json*")) if p.is_dir() else [p])]
    tables = []
    for f in files:
        data = f.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if data[:2] == b"\x1f\x8b":
            data = igzip.decompress(data)
        tables.append(import_kineto(kineto.read_head(data, f.name), f.name, digest))
    tables.sort(key=lambda t: t.meta.rank)
    return RunTrace(name or paths[0].name.split(".")[0], tuple(tables))
