"""Memory that a rank keeps, tried in a process of its own: the allocator is the whole process's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PROGRAM = """
import json, resource, sys
from gnnperf.record.launcher import keep_memory
told = keep_memory() if sys.argv[1] == "kept" else {}
import torch

def step():
    return torch.ones(2_000_000).mul(2.0).add(1.0).sum().item()  # 8 MB thrice: 6,000 pages

step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(json.dumps({"told": told, "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before}))
"""


def run(allocator: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, allocator], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_step_touches_no_fresh_page() -> None:
    retained, default = run("kept"), run("default")
    assert retained["told"]["allocator"] in ("glibc, memory kept", "default")
    if retained["told"]["allocator"] == "default":
        assert retained["told"] == {"allocator": "default"}  # another C library: stated, and nothing else done
        return
    assert retained["told"]["pool_bytes"] > 0
    assert retained["faults"] < 100
    assert retained["faults"] < default["faults"]
