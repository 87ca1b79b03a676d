"""The files of a calibration: a folder that is whole or not there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from gnnperf.core import InputError, replacing_folder
from gnnperf.record.calibrate.compare import OPS_FILE

DEVICE_FILE, CLUSTER_FILE, ROUNDS_FILE = "device.yaml", "cluster.yaml", "calibration.json"
OWN = (DEVICE_FILE, CLUSTER_FILE, OPS_FILE, ROUNDS_FILE)


def check_out(out: Path, overwrite: bool) -> None:
    """Before anything is measured.

    Raises:
        InputError: `out` exists and may not be overwritten, holds other files, or cannot be made.
    """
    if out.exists() and not out.is_dir():
        raise InputError("is a file", where=str(out), allowed="a directory to write to")
    held = sorted(p.name for p in out.iterdir()) if out.is_dir() else []
    foreign = [name for name in held if name not in OWN]
    if foreign:
        raise InputError(f"holds other files ({foreign[0]!r})", where=str(out), remedy="choose a new directory")
    if held and not overwrite:
        raise InputError("holds a calibration already", where=str(out), remedy="choose another, or add --overwrite")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise _unwritable(out, error) from None


def write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the folder: all of it, or nothing is changed.

    Raises:
        InputError: it cannot be written.
    """
    with replacing_folder(out) as temporary:
        for name, content in files.items():
            (temporary / name).write_bytes(content)


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(f"cannot be written ({error.strerror or error})", where=str(out),
                      remedy="choose a directory you may write to, with space left")  # fmt: skip
