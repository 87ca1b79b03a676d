"""What the tests of a rank without peers run; found by name in the new process."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.profiler import profile

from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.exchange import Blocking
from research.recording.workloads.moe import Moe
from research.recording.workloads.random_graph import RandomGraph
from research.recording.workloads.rl import Rl
from research.recording.workloads.sharded_tables import Sharding, sharded
from research.recording.workloads.workload import Workload
from tests.research.recording.workloads.ranks import write

TABLES = Dlrm(tables=3, rows=7, dim=4, batch=3, pooling=2, bottom=(8,), top=(8,))
EXPERTS = Moe(layers=1, width=32, experts=3, sequence=8, batch=2, hidden=16, vocabulary=20)
PROGRAMS: dict[str, Workload] = {
    "dlrm": TABLES,
    "padded": EXPERTS,
    "uneven": replace(EXPERTS, padded=False),
    "rl": Rl(hidden=8, num_envs=4, horizon=2),
    "random_graph": RandomGraph(num_ops=8, scale=16_000, batch=4),
}


def isolated(folder: Path) -> None:
    """Write the error of looked up vectors, and of every program its losses and the names of its collectives."""
    result: dict[str, object] = {"difference": _difference()}
    for name, workload in PROGRAMS.items():
        trainer = workload.build()
        with profile() as profiled:
            losses = [float(trainer.step()) for _ in range(3)]
        collectives = {event.name for event in profiled.events() if event.name.startswith(("c10d::", "gloo:"))}
        result[name] = {"losses": losses, "collectives": sorted(collectives)}
    write(folder, result)


def _difference() -> float:
    torch.manual_seed(0)
    weights = torch.randn(TABLES.tables, TABLES.rows, TABLES.dim)
    indices = torch.randint(0, TABLES.rows, (TABLES.tables, TABLES.batch, TABLES.pooling))
    tables = sharded(TABLES, Sharding.ROW)
    for table, bag in enumerate(tables.bags):
        assert isinstance(bag, nn.EmbeddingBag)
        bag.weight.data = weights[table].clone()
    rows = torch.stack([weights[t][indices[t]].sum(dim=1) for t in range(TABLES.tables)], dim=1)  # [B, T, D]
    return float((tables.begin(indices, Blocking)() - rows).abs().max())
