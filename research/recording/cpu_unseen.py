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

SIZES: dict[type[Workload], tuple[tuple[int, ...], ...]] = {  # fields of a program in their order
    # levels, channels, image, batch
    Unet: ((2, 8, 16, 8), (2, 16, 16, 8), (3, 8, 24, 8), (2, 32, 16, 4), (3, 16, 16, 16), (2, 24, 24, 8)),
    # layers, hidden, nodes, degree, batch
    GraphNetwork: ((2, 32, 256, 4, 4), (2, 64, 256, 8, 4), (4, 64, 512, 4, 4), (3, 128, 256, 8, 4),
                   (2, 256, 512, 4, 2), (3, 64, 1024, 16, 2)),
    # layers, hidden, sequence, batch
    Recurrent: ((1, 64, 32, 16), (2, 64, 32, 16), (1, 128, 32, 32), (2, 128, 16, 32), (1, 256, 32, 16),
                (2, 192, 24, 16)),
    # channels, image, latent, batch
    Autoencoder: ((8, 16, 16, 16), (16, 16, 32, 16), (16, 32, 32, 16), (32, 16, 64, 32), (24, 24, 32, 16),
                  (32, 32, 64, 8)),
    # layers, hidden, patch, batch
    Mixer: ((2, 32, 8, 8), (2, 64, 4, 8), (4, 64, 8, 16), (2, 128, 4, 8), (2, 256, 8, 16), (3, 128, 4, 16)),
    # vocabulary, hidden, layers, batch
    TwoTowers: ((1000, 32, 2, 128), (2000, 64, 2, 256), (1000, 128, 3, 256), (4000, 64, 4, 512), (1000, 256, 2, 512),
                (2000, 128, 4, 512)),
    # blocks, channels, length, batch
    Temporal: ((2, 16, 64, 16), (4, 32, 64, 16), (3, 48, 128, 8), (4, 64, 128, 16), (5, 24, 256, 16), (3, 96, 96, 32)),
    # points, hidden, layers, batch
    PointCloud: ((128, 16, 3, 8), (256, 32, 4, 8), (512, 32, 3, 16), (256, 64, 4, 8), (1024, 64, 3, 8),
                 (128, 128, 3, 16)),
}  # fmt: skip


def cpu_unseen() -> Plan:
    """The plan: every size on two ranks, one over each of two links, one rank by itself."""
    runs = tuple(chain.from_iterable(zip(*(_runs(program, sizes) for program, sizes in SIZES.items()), strict=True)))
    return Plan(
        name="cpu-unseen",
        runs=runs,
        steps=STEPS,
        splits={"unseen": {"train": [], "val": [], "test": [run.name for run in runs]}},
        axes={"unseen": "programs: all of them are held out, for good"},
        min_gap_s=300.0,
    )


def _runs(program: type[Workload], sizes: tuple[tuple[int, ...], ...]) -> list[RunSpec]:
    programs = [program(*own) for own in sizes]
    return [*map(RunSpec, programs), RunSpec(programs[1], link=MEDIUM), RunSpec(programs[3], link=FAST),
            RunSpec(programs[2], world_size=1)]  # fmt: skip
