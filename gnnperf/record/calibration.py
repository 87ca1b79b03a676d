"""Calibration as the first step of a recipe, in a process of its own: it needs more than the recorder, torch only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from gnnperf.core.errors import InputError
from gnnperf.record.dataset import Say

CALIBRATION = "calibration"


def calibrate_first(raw: Path, minutes: float, say: Say) -> None:
    """Measure the device at hand into `raw`/calibration, unless that was done before or `minutes` is 0.

    Raises:
        InputError: the calibration failed; it has said why.
    """
    folder = raw / CALIBRATION
    if minutes == 0 or folder.exists():  # it is written in one piece
        return
    say(f"calibrating for {minutes:g} min")
    raw.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "gnnperf", "calibrate", "--out", str(folder), "--minutes", f"{minutes:g}"]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise InputError(f"calibration ended with exit code {done.returncode}", where=" ".join(command),
                         remedy="its message is above; --resume tries again")  # fmt: skip


def copy_calibration(raw: Path, out: Path) -> None:
    """Keep it beside the recordings."""
    if (raw / CALIBRATION).is_dir():
        shutil.copytree(raw / CALIBRATION, out / CALIBRATION, dirs_exist_ok=True)
