"""What the tests of the programs of `cpu-unseen` run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

import json
from pathlib import Path

import torch.distributed as dist

from research.recording.workloads.autoencoder import Autoencoder
from research.recording.workloads.graph_network import GraphNetwork
from research.recording.workloads.mixer import Mixer
from research.recording.workloads.point_cloud import PointCloud
from research.recording.workloads.recurrent import Recurrent
from research.recording.workloads.temporal import Temporal
from research.recording.workloads.two_towers import TwoTowers
from research.recording.workloads.unet import Unet
from research.recording.workloads.workload import Place, Workload

PROGRAMS: tuple[Workload, ...] = (
    Unet(levels=2, channels=4, image=8, batch=2),
    GraphNetwork(layers=1, hidden=8, nodes=16, degree=2, batch=2),
    Recurrent(layers=1, hidden=8, sequence=4, batch=2),
    Autoencoder(channels=4, image=8, latent=4, batch=4),
    Mixer(layers=1, hidden=8, patch=16, batch=2),
    TwoTowers(vocabulary=20, hidden=8, layers=1, batch=4),
    Temporal(blocks=2, channels=4, length=8, batch=4),
    PointCloud(points=16, hidden=8, layers=2, batch=8),
)


def train(folder: Path) -> None:
    """Write places passed in a step, losses and weights, as rank_<r>.json."""
    result = {program.kind: _trained(program) for program in PROGRAMS}
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps(result))


def _trained(program: Workload) -> dict[str, object]:
    trainer, places = program.build(), list[Place]()
    losses = [float(trainer.step(places.append))]
    norms = [float(w.grad.norm()) for m in trainer.replicated for w in m.parameters() if w.grad is not None]
    losses += [float(trainer.step()) for _ in range(40)]
    weights = [float(w.detach().double().sum()) for m in trainer.replicated for w in m.parameters()]
    return {"places": places, "losses": losses, "norms": norms, "weights": weights}
