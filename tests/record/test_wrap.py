"""`gnnperf record -- COMMAND` around real training scripts, in an environment that has torch and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gnnperf
from gnnperf.record import card

TORCHRUN = ["torchrun", "--nproc-per-node", "2"]
# What the recorder must not need. Python imports this module by itself before any other.
SITECUSTOMIZE = """
import sys
from importlib.machinery import ModuleSpec

FOREIGN = {
    "pandas", "numpy", "pyarrow", "msgspec", "isal", "hydra", "omegaconf", "lightning", "torch_geometric", "rich"
}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] in FOREIGN else None

    def create_module(self, spec):
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)

    def exec_module(self, module):
        raise AssertionError

sys.meta_path.insert(0, Blocker())
"""
TRAIN = """
import gc, os, signal, sys
import torch
import torch.distributed as dist
from torch import nn

import beside  # a module in the script's own folder

ranks = "WORLD_SIZE" in os.environ
if ranks:
    dist.init_process_group("gloo")
model = nn.Linear(16, 16)
if ranks:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps, ending = int(sys.argv[1]), sys.argv[2]
for step in range(steps):
    for _ in range(2):
        model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if ending == "killed" and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "fails":
    raise KeyError("a secret")
line = f"trained {steps} {__name__} {__file__ == os.path.abspath(sys.argv[0])}\\n"
os.write(1, line.encode())  # in one piece: ranks share the pipe
if ranks:
    del model, optimizer
    gc.collect()  # a model that still holds its group at exit may abort the program: its threads want the interpreter
    dist.destroy_process_group()
sys.exit(int(ending) if ending.isdigit() else 0)
"""
ITSELF = """
import sys
import torch
from gnnperf.record import record

weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight])
weight.grad = torch.ones(1)
optimizer.step()  # before its own recording begins
with record(sys.argv[1], warmup_steps=0, unprofiled_steps=1, profiled_steps=1) as step:
    while not step.done:
        optimizer.step()
        step()
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder with train.py, and an environment that lacks what the recorder must not need."""
    folder = tmp_path / "scripts"
    (folder / "site").mkdir(parents=True)
    for name, text in (
        ("train.py", TRAIN),
        ("itself.py", ITSELF),
        ("beside.py", ""),
        ("site/sitecustomize.py", SITECUSTOMIZE),
    ):
        (folder / name).write_text(text)
    return folder


def record(scripts: Path, out: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """`gnnperf record` of three steps' sorts, 2 + 3 + 2 + 2 + 3 + 1 = 13 steps."""
    steps = ["--warmup-steps", "2", "--unprofiled-steps", "3", "--profiled-steps", "2"]
    folder, source = Path(sys.executable).parent, Path(str(gnnperf.__file__)).parents[1]
    environment = os.environ | {
        "PYTHONPATH": f"{scripts / 'site'}:{source}", "PATH": f"{folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    words = [sys.executable, "-m", "gnnperf", "record", "--out", str(out), *steps, "--", *command]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=110, check=False)


def card_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "run.json").read_text())
    return content


def test_a_script_under_torchrun_is_recorded_unchanged(scripts: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = record(scripts, out, *TORCHRUN, str(scripts / "train.py"), "20", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 20 __main__ True") == 2
    about = card_of(out)
    assert (about["status"], about["world_size"], about["workload"]) == ("complete", 2, "train")
    assert about["link"] == {"backend": "gloo", "medium": "one host", "hosts": 1}
    assert about["step_time"]["without_profiler"]["steps"] == 3 and about["step_time"]["with_profiler"]["steps"] == 2
    assert sorted(p.name for p in out.iterdir()) == [
        "rank_0.et.json.gz", "rank_0.kineto.json.gz", "rank_1.et.json.gz", "rank_1.kineto.json.gz", "run.json"
    ]  # fmt: skip
    assert str(tmp_path) not in (out / "run.json").read_text()


@pytest.mark.parametrize(
    ("steps", "ending", "code", "status", "reason"),
    [
        ("14", "3", 3, "complete", ""),  # the script's own exit code
        ("13", "0", 1, "broken", "rank 0: 12 of 13 steps ran"),  # the first step only begins the recording
        ("5", "fails", 1, "broken", "rank 0: KeyError"),
        ("0", "0", 2, "broken", "no optimizer step was seen"),
    ],
)
def test_how_a_script_ends(scripts: Path, tmp_path: Path, steps: str, ending: str, code: int, status: str,
                           reason: str) -> None:  # fmt: skip
    out = tmp_path / "run"
    done = record(scripts, out, sys.executable, str(scripts / "train.py"), steps, ending)
    assert (done.returncode, card_of(out)["status"], card.reason(out)) == (code, status, reason), done.stderr
    if status == "broken":
        assert reason in done.stderr or "no step was seen" in done.stderr
        assert done.stderr.count("steps ran") == reason.count("steps ran")  # one message, from `gnnperf record`


@pytest.mark.slow
def test_a_killed_rank_leaves_a_broken_run_and_the_complete_one_with_it(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    monkeypatch.chdir(scripts)
    done = record(scripts, whole, sys.executable, "-m", "train", "14", "0")  # a module
    assert done.returncode == 0, done.stderr
    assert card_of(whole)["workload"] == "train"
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    done = record(scripts, broken, *TORCHRUN, str(scripts / "train.py"), "5", "killed")
    assert done.returncode == 1
    assert card_of(broken)["status"] == "broken"
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before
    refused = record(scripts, whole, sys.executable, str(scripts / "train.py"), "14", "0")
    assert refused.returncode == 2 and "holds a complete run" in refused.stderr


def test_a_script_that_records_itself_is_left_as_it_is(scripts: Path, tmp_path: Path) -> None:
    own, out = tmp_path / "own", tmp_path / "out"
    done = record(scripts, out, sys.executable, str(scripts / "itself.py"), str(own))
    assert done.returncode == 2, done.stderr
    assert card_of(own)["status"] == "complete"
    assert "run it without `gnnperf record`" in done.stderr


def test_a_command_that_cannot_run_is_refused(scripts: Path, tmp_path: Path) -> None:
    done = record(scripts, tmp_path / "run", "mpirun-xyz", "python", "train.py")
    assert done.returncode == 2 and "cannot be started" in done.stderr
