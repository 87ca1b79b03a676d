"""The short version of `python -m research.benchmarks.crash_safety`: import, on traces of a few events."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.trace import kineto_files as files

ROOT = Path(__file__).parents[3]
COUNTS = {"SIGKILL": 3, "SIGINT": 1, "full disk": 1, "two writers": 1}
TRIALS = f"""
import sys
from dataclasses import replace
from pathlib import Path
from research.benchmarks.crash_safety import jobs, trials_of
folder = Path(sys.argv[1])
job = replace(jobs(folder)["import"], inputs=(folder / "a", folder / "b"))
(folder / "work").mkdir()
for fault, tally in trials_of(job, {COUNTS!r}, folder / "work", seed=0).items():
    print(fault, tally.results["broken"], tally.results.total(), tally.wrong_exits, sep=",")
"""


def test_import_leaves_the_earlier_output_or_the_new_one(tmp_path: Path) -> None:
    files.write_ranks(tmp_path / "a", 1)
    files.write_ranks(tmp_path / "b", 2)
    command = [sys.executable, "-c", TRIALS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == [f"{fault},0,{count},0" for fault, count in COUNTS.items()]
