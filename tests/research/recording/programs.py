"""What the tests run in ranks of their own; found by name in the new processes."""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.exchange import exchange
from research.recording.workloads.workload import LossTrainer, Workload

TINY_DLRM = Dlrm(tables=2, rows=1000, dim=4, batch=8, pooling=2, bottom=(8,), top=(8,))


@dataclass(frozen=True)
class Doomed(Workload, kind="doomed", letters={}, width="size"):
    """Its rank 1 is killed in the third step."""

    size: int = 1

    @property
    def batch(self) -> int:
        return 1

    def build(self) -> LossTrainer:
        weight = nn.Parameter(torch.ones(1))
        steps = iter(range(100))

        def forward() -> torch.Tensor:
            if next(steps) == 2 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1))
            return weight.sum()

        return LossTrainer((), forward, (torch.optim.SGD([weight], lr=0.1),))


def exchange_ranks(folder: Path) -> None:
    """Rank r sends [10 r, 10 r + 1]; its loss weighs what it received with r + 1."""
    rank = dist.get_rank()
    sent = torch.tensor([10.0 * rank, 10.0 * rank + 1], requires_grad=True)
    received = exchange(sent)
    (received.sum() * (rank + 1)).backward()
    assert sent.grad is not None
    result = {"received": received.tolist(), "gradient": sent.grad.tolist()}
    (folder / f"rank_{rank}.json").write_text(json.dumps(result))
