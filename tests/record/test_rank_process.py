"""Memory that a rank keeps, tried in a process of its own: the allocator is the whole process's."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = """
import json, resource
from gnnperf.record.launcher import keep_memory
import torch

def step():
    return torch.ones(2_000_000).mul(2.0).add(1.0).sum().item()  # 8 MB thrice: 6,000 pages

def faults():
    step(), step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(json.dumps({"default": faults(), "stated": keep_memory(), "faults": faults()}))
"""


def test_a_step_touches_no_fresh_page() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if result["stated"] == {"allocator": "default"}:  # another C library: stated, and nothing else done
        return
    assert result["stated"]["allocator"] == "glibc, memory kept" and result["stated"]["pool_bytes"] > 0
    assert result["faults"] < 100
    assert result["faults"] < result["default"]


WITHIN_S = 60.0


def wait_in_vain(folder: Path) -> None:
    """What a rank does here: say who it is, then wait for what never comes."""
    (folder / str(os.getpid())).touch()
    time.sleep(600)


def main(folder: Path) -> None:
    """The launcher, in a process of its own."""
    from gnnperf.record.launcher import launch

    launch(wait_in_vain, (folder,), world_size=2, timeout_s=600)


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from tests.record.test_rank_process import main; main(Path({str(tmp_path)!r}))"
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    try:
        assert within(WITHIN_S, lambda: len(list(tmp_path.iterdir())) == 2)
        ranks = [int(path.name) for path in tmp_path.iterdir()]
        assert all(map(runs, ranks))
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    assert within(WITHIN_S, lambda: not any(map(runs, ranks)))


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether something holds before the time is up."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before, or while it was read
        return False
