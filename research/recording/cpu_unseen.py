"""Programs that nothing which ships is fitted or chosen on: they judge the analytical model as it ships.

A benchmark may train a network on them to judge it on other programs (`data.train_paths`); no such network ships.
"""

from __future__ import annotations

from itertools import chain

from research.recording.cpu_gloo import STEPS
from research.recording.cpu_gloo_runs import FAST, MEDIUM
from research.recording.plan import Plan
from research.recording.spec import RunSpec
from research.recording.workloads.autoencoder import Autoencoder
from research.recording.workloads.graph_network import GraphNetwork
from research.recording.workloads.mixer import Mixer
from research.recording.workloads.point_cloud import PointCloud
from research.recording.workloads.recurrent import Recurrent
from research.recording.workloads.temporal import Temporal
from research.recording.workloads.two_towers import TwoTowers
from research.recording.workloads.unet import Unet
from research.recording.workloads.workload import Workload

UNET = (
    Unet(levels=2, channels=8, image=16, batch=8),
    Unet(levels=2, channels=16, image=16, batch=8),
    Unet(levels=3, channels=8, image=24, batch=8),
    Unet(levels=2, channels=32, image=16, batch=4),
    Unet(levels=3, channels=16, image=16, batch=16),
    Unet(levels=2, channels=24, image=24, batch=8),
)
GRAPH_NETWORK = (
    GraphNetwork(layers=2, hidden=32, nodes=256, degree=4, batch=4),
    GraphNetwork(layers=2, hidden=64, nodes=256, degree=8, batch=4),
    GraphNetwork(layers=4, hidden=64, nodes=512, degree=4, batch=4),
    GraphNetwork(layers=3, hidden=128, nodes=256, degree=8, batch=4),
    GraphNetwork(layers=2, hidden=256, nodes=512, degree=4, batch=2),
    GraphNetwork(layers=3, hidden=64, nodes=1024, degree=16, batch=2),
)
RECURRENT = (
    Recurrent(layers=1, hidden=64, sequence=32, batch=16),
    Recurrent(layers=2, hidden=64, sequence=32, batch=16),
    Recurrent(layers=1, hidden=128, sequence=32, batch=32),
    Recurrent(layers=2, hidden=128, sequence=16, batch=32),
    Recurrent(layers=1, hidden=256, sequence=32, batch=16),
    Recurrent(layers=2, hidden=192, sequence=24, batch=16),
)
AUTOENCODER = (
    Autoencoder(channels=8, image=16, latent=16, batch=16),
    Autoencoder(channels=16, image=16, latent=32, batch=16),
    Autoencoder(channels=16, image=32, latent=32, batch=16),
    Autoencoder(channels=32, image=16, latent=64, batch=32),
    Autoencoder(channels=24, image=24, latent=32, batch=16),
    Autoencoder(channels=32, image=32, latent=64, batch=8),
)
MIXER = (
    Mixer(layers=2, hidden=32, patch=8, batch=8),
    Mixer(layers=2, hidden=64, patch=4, batch=8),
    Mixer(layers=4, hidden=64, patch=8, batch=16),
    Mixer(layers=2, hidden=128, patch=4, batch=8),
    Mixer(layers=2, hidden=256, patch=8, batch=16),
    Mixer(layers=3, hidden=128, patch=4, batch=16),
)
TWO_TOWERS = (
    TwoTowers(vocabulary=1000, hidden=32, layers=2, batch=128),
    TwoTowers(vocabulary=2000, hidden=64, layers=2, batch=256),
    TwoTowers(vocabulary=1000, hidden=128, layers=3, batch=256),
    TwoTowers(vocabulary=4000, hidden=64, layers=4, batch=512),
    TwoTowers(vocabulary=1000, hidden=256, layers=2, batch=512),
    TwoTowers(vocabulary=2000, hidden=128, layers=4, batch=512),
)
TEMPORAL = (
    Temporal(blocks=2, channels=16, length=64, batch=16),
    Temporal(blocks=4, channels=32, length=64, batch=16),
    Temporal(blocks=3, channels=48, length=128, batch=8),
    Temporal(blocks=4, channels=64, length=128, batch=16),
    Temporal(blocks=5, channels=24, length=256, batch=16),
    Temporal(blocks=3, channels=96, length=96, batch=32),
)
POINT_CLOUD = (
    PointCloud(points=128, hidden=16, layers=3, batch=8),
    PointCloud(points=256, hidden=32, layers=4, batch=8),
    PointCloud(points=512, hidden=32, layers=3, batch=16),
    PointCloud(points=256, hidden=64, layers=4, batch=8),
    PointCloud(points=1024, hidden=64, layers=3, batch=8),
    PointCloud(points=128, hidden=128, layers=3, batch=16),
)
PROGRAMS: tuple[tuple[Workload, ...], ...] = (
    UNET, GRAPH_NETWORK, RECURRENT, AUTOENCODER, MIXER, TWO_TOWERS, TEMPORAL, POINT_CLOUD,
)  # fmt: skip


def cpu_unseen() -> Plan:
    """The plan: every size on two ranks, one over each of two links, one rank by itself."""
    runs = tuple(chain.from_iterable(zip(*map(_runs, PROGRAMS), strict=True)))
    return Plan(
        name="cpu-unseen",
        runs=runs,
        steps=STEPS,
        splits={"unseen": {"train": [], "val": [], "test": [run.name for run in runs]}},
        axes={"unseen": "programs: all of them are held out, for good"},
        min_gap_s=300.0,
    )


def _runs(sizes: tuple[Workload, ...]) -> list[RunSpec]:
    return [*map(RunSpec, sizes), RunSpec(sizes[1], link=MEDIUM), RunSpec(sizes[3], link=FAST),
            RunSpec(sizes[2], world_size=1)]  # fmt: skip
