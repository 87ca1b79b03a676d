"""What the tests of random programs run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

from research.recording.workloads.random_graph import RandomGraph


def train(folder: Path, programs: Sequence[RandomGraph]) -> None:
    """Write losses, weights and parameters without gradient, as rank_<r>.json."""
    result = {}
    for workload in programs:
        trainer = workload.build()
        losses = [float(trainer.step()) for _ in range(2)]
        weights = [p for module in trainer.replicated for p in module.parameters()]
        result[workload.name] = {
            "losses": losses,
            "weights": [float(p.detach().double().sum()) for p in weights],
            "without_gradient": sum(p.grad is None for p in weights),
        }
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps(result))
