"""What the tests of reinforcement learning run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

import json
from pathlib import Path

import torch.distributed as dist

from research.recording.workloads.rl import Rl

PROGRAMS = {
    "python": Rl(hidden=16, num_envs=16, horizon=16),
    "repeats": Rl(hidden=16, num_envs=16, horizon=16, repeats=3, repeating_rank=1),
    "tensor": Rl(hidden=16, num_envs=16, horizon=16, vectorized=True),
    "accumulation": Rl(hidden=16, num_envs=16, horizon=4, accumulation=2),
}


def train(folder: Path, steps: int) -> None:
    """Write losses, weights and parameters without gradient, as rank_<r>.json."""
    result = {}
    for name, workload in PROGRAMS.items():
        trainer = workload.build()
        losses = [float(trainer.step()) for _ in range(steps)]
        weights = [p for module in trainer.replicated for p in module.parameters()]
        result[name] = {
            "losses": losses,
            "weights": [float(p.detach().double().sum()) for p in weights],
            "without_gradient": sum(p.grad is None for p in weights),
        }
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps(result))
