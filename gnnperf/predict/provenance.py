"""Where an answer came from: versions and hashes. Base names only; no paths, hosts, users or free-form metadata."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gnnperf import __version__
from gnnperf.trace import file_names

LIBRARIES = ("numpy", "pandas", "pyarrow", "numba", "torch", "torch-geometric")


def provenance(
    inputs: Path | None,
    checkpoint_sha256: str | None,
    fingerprint: str,
    collectives: str | None = None,
    measured: Path | None = None,
    evidence: str | None = None,
) -> dict[str, Any]:
    """Versions of the code and its libraries, hashes of inputs and checkpoint.

    Args:
        inputs: the trace as the user named it, a file or a directory; None: a plan, whose fingerprint is the graph's.
        checkpoint_sha256: of the trained model, if one was used.
        fingerprint: of the graph (code and inputs).
        collectives: what answers collectives; None: measured, as in a replay.
        measured: the user's own op table, if one answers first.
        evidence: what is taken from the measurements of the trace; None: a replay.
    """
    return {
        "gnnperf": __version__,
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "checkpoint_sha256": checkpoint_sha256,
        "measured_sha256": None if measured is None else sha256(measured),
        "graph_fingerprint": fingerprint,
        "collectives": collectives,
        "evidence": evidence,
        "input_sha256": {} if inputs is None else input_sha256(inputs),
    }


def input_sha256(inputs: Path) -> dict[str, str]:
    """File name (relative to the folder, if a folder was given) -> sha256, hidden files left out.

    Names are those that outputs may show (`trace.event_names`).
    """
    folder = inputs if inputs.is_dir() else inputs.parent
    files = (
        sorted(p.relative_to(folder) for p in inputs.rglob("*") if p.is_file())
        if inputs.is_dir()
        else [Path(inputs.name)]
    )
    shown = [file for file in files if not any(part.startswith(".") for part in file.parts)]
    return {name: sha256(folder / file) for name, file in zip(file_names(shown), shown, strict=True)}


def sha256(path: Path) -> str:
    """Hash of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
