"""Where a training command names its script."""

from __future__ import annotations

import shlex
import sys

import pytest

from gnnperf.core.errors import InputError
from gnnperf.record.wrap import rewritten

HERE = "-m gnnperf.record.script --out o"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 1", f"python {HERE} -- train.py --lr 1"),
        ("/usr/bin/python3.11 -u -X dev train.py", f"/usr/bin/python3.11 -u -X dev {HERE} -- train.py"),
        ("python -m pack.train -x -- y.py", f"python {HERE} --module -- pack.train -x -- y.py"),
        ("torchrun --nproc-per-node 2 train.py -m x", f"torchrun --nproc-per-node 2 {HERE} -- train.py -m x"),
        ("torchrun --standalone --nproc_per_node=2 -m pack.train a",
         "torchrun --standalone --nproc_per_node=2 -m gnnperf.record.script --out o --module -- pack.train a"),
        ("torchrun -m --nproc-per-node 2 pack.train",
         "torchrun -m --nproc-per-node 2 gnnperf.record.script --out o --module -- pack.train"),
        ("torchrun --no-python python train.py", f"torchrun --no-python python {HERE} -- train.py"),
        ("python -m torch.distributed.run --nnodes 1 train.py",
         f"python -m torch.distributed.run --nnodes 1 {HERE} -- train.py"),
        ("accelerate launch --num_processes 2 train.py --lr 1",
         f"accelerate launch --num_processes 2 {HERE} -- train.py --lr 1"),
        ("accelerate launch --num_processes 2 -m pack.train",
         f"accelerate launch --num_processes 2 {HERE} --module -- pack.train"),
        ("mpirun -np 2 -x A=1 python train.py", f"mpirun -np 2 -x A=1 python {HERE} -- train.py"),
        ("srun -n 2 torchrun train.py", f"srun -n 2 torchrun {HERE} -- train.py"),
        ("train.py --lr 1", f"{sys.executable} {HERE} -- train.py --lr 1"),
    ],
)  # fmt: skip
def test_the_script_runs_under_the_recorder(command: str, expected: str) -> None:
    assert shlex.join(rewritten(shlex.split(command), ["--out", "o"])) == expected


@pytest.mark.parametrize(
    "command", ["bash train.sh", "python -c 'print(1)'", "python", "accelerate launch", "python -u"]
)
def test_a_command_without_a_script_is_refused(command: str) -> None:
    with pytest.raises(InputError, match=r"no .*script .*Allowed: python, torchrun"):
        rewritten(shlex.split(command), [])
