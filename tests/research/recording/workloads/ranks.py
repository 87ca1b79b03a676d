"""Programs in ranks of their own: what each rank writes, and what tests read; found by name in new processes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import profile

from gnnperf.core.errors import InputError
from gnnperf.record.launcher import launch
from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.exchange import Blocking
from research.recording.workloads.moe import Moe
from research.recording.workloads.random_graph import RandomGraph
from research.recording.workloads.rl import Rl
from research.recording.workloads.sharded_tables import Sharding, sharded
from research.recording.workloads.workload import Place, Workload

Ranks = list[dict[str, Any]]
TABLES = Dlrm(tables=3, rows=7, dim=4, batch=3, pooling=2, bottom=(8,), top=(8,))
EXPERTS = Moe(layers=1, width=32, experts=3, sequence=8, batch=2, hidden=16, vocabulary=20)
ISOLATED: dict[str, Workload] = {
    "dlrm": TABLES,
    "padded": EXPERTS,
    "uneven": replace(EXPERTS, padded=False),
    "rl": Rl(hidden=8, num_envs=4, horizon=2),
    "random_graph": RandomGraph(num_ops=8, scale=16_000, batch=4),
}


def results_of(main: Callable[..., None], folder: Path, *arguments: object, world_size: int = 2) -> Ranks:
    """Run `main(folder, *arguments)` on every rank; what each wrote."""
    launch(main, (folder, *arguments), world_size=world_size, timeout_s=240)
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(world_size)]


def write(folder: Path, result: Mapping[str, object]) -> None:
    """As rank_<r>.json."""
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps(result))


def train(folder: Path, programs: Mapping[str, Workload], steps: Mapping[str, int]) -> None:
    """Train programs, each as many steps as its kind takes."""
    write(folder, {name: trained(program, steps[program.kind]) for name, program in programs.items()})


def trained(program: Workload, steps: int) -> dict[str, object]:
    """Losses, weights of the replicated modules; gradients and places of the first step."""
    trainer, places = program.build(), list[Place]()
    losses = [float(trainer.step(places.append))]
    weights = [weight for module in trainer.replicated for weight in module.parameters()]
    gradients = [weight.grad.double() for weight in weights if weight.grad is not None]
    result = {"gradients": [float(each.abs().sum()) for each in gradients], "places": places}
    losses += [float(trainer.step()) for _ in range(steps - 1)]
    return {"losses": losses, "weights": [float(weight.detach().double().sum()) for weight in weights], **result}


def refusal(program: Workload) -> str:
    """The message of a program that cannot be built; "": it can."""
    try:
        program.build()
    except InputError as error:
        return str(error)
    return ""


def part_of(table: torch.Tensor, sharding: Sharding) -> torch.Tensor:
    """Of a table [rows, D]: what this rank holds; rows that the ranks cannot share equally end in zeros."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if sharding == Sharding.TABLE:
        return table.clone()
    if sharding == Sharding.COLUMN:
        return table.chunk(ranks, dim=1)[rank].contiguous()
    held = torch.zeros(-(-len(table) // ranks), table.shape[1])
    own = table[rank::ranks]
    held[: len(own)] = own
    return held


def isolated(folder: Path) -> None:
    """Write the error of looked up vectors, and what three steps of every program show."""
    steps = {name: three_steps(workload) for name, workload in ISOLATED.items()}
    write(folder, {"difference": _difference(), **steps})


def three_steps(program: Workload) -> dict[str, object]:
    """Losses of three steps, and names of collectives."""
    trainer = program.build()
    with profile() as profiled:
        losses = [float(trainer.step()) for _ in range(3)]
    sent = {event.name for event in profiled.events() if event.name.startswith(("c10d::", "gloo:"))}
    return {"losses": losses, "collectives": sorted(sent)}


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
