"""What the tests of the programs of `cpu-unseen` run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

import json
from pathlib import Path

import torch.distributed as dist

from gnnperf.record.workloads.autoencoder import Autoencoder
from gnnperf.record.workloads.graph_network import GraphNetwork
from gnnperf.record.workloads.mixer import Mixer
from gnnperf.record.workloads.point_cloud import PointCloud
from gnnperf.record.workloads.recurrent import Recurrent
from gnnperf.record.workloads.temporal import Temporal
from gnnperf.record.workloads.two_towers import TwoTowers
from gnnperf.record.workloads.unet import Unet
from gnnperf.record.workloads.workload import Place, Workload

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
    found = {program.kind: _trained(program) for program in PROGRAMS}
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps(found))


def _trained(program: Workload) -> dict[str, object]:
    trainer, places = program.build(), list[Place]()
    losses = [float(trainer.step(places.append))]
    norms = [float(w.grad.norm()) for m in trainer.replicated for w in m.parameters() if w.grad is not None]
    losses += [float(trainer.step()) for _ in range(40)]
    weights = [float(w.detach().double().sum()) for m in trainer.replicated for w in m.parameters()]
    return {"places": places, "losses": losses, "norms": norms, "weights": weights}
