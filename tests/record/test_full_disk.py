"""A disk that is full leaves complete runs as they are and marks the one it broke."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.record import card, record

FAST: dict[str, Any] = {"warmup_steps": 0, "unprofiled_steps": 1, "profiled_steps": 1}
DISK_BYTES = 128 * 2**10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "gnnperf-test", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def train(run_dir: Path, filler: Path | None = None) -> None:
    weight = torch.ones(8, 8, requires_grad=True)
    with record(run_dir, **FAST) as step:
        while not step.done:
            (weight @ weight).sum().backward()
            step()
        if filler is not None:
            fill(filler)


def fill(path: Path) -> None:
    """Until not a byte is left."""
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))


def test_a_full_disk_breaks_one_run_only(disk: Path) -> None:
    train(disk / "whole")
    before = {path.name: path.read_bytes() for path in (disk / "whole").iterdir()}
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        train(disk / "broken", disk / "filler")
    assert card.status(disk / "broken") == "broken"
    assert "No space left" in json.loads((disk / "broken" / "run.json").read_text())["reason"]
    assert [path.name for path in (disk / "broken").iterdir()] == ["run.json"]
    assert {path.name: path.read_bytes() for path in (disk / "whole").iterdir()} == before
    (disk / "filler").unlink()
    train(disk / "broken")
    assert card.status(disk / "broken") == "complete"


def test_a_disk_that_is_full_from_the_start_is_refused(disk: Path) -> None:
    fill(disk / "filler")
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        train(disk / "run")
