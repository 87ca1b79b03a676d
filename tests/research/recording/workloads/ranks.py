"""Programs in ranks of their own: what each rank writes, and what tests read; found by name in new processes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gnnperf.core.errors import InputError
from gnnperf.record.launcher import launch
from research.recording.workloads.sharded_tables import Sharding
from research.recording.workloads.workload import Place, Workload

Ranks = list[dict[str, Any]]


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
