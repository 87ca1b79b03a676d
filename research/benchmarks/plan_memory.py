"""Peak memory of plans next to torch's own accounting of programs that do the same, on tensors without data.

    python -m research.benchmarks plan_memory

torch's tracker (torch.distributed._tools.mem_tracker.MemTracker) counts every storage of a step: of fully_shard, of
stages that run their passes, of tensor- and sequence-parallel layers, of experts, of recommendation models. Nothing is
fitted. Baseline: model states and closed forms of activations (Rajbhandari et al. 2020; Korthikanti et al. 2022),
without whole parameters, messages and the tensors of single ops.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.generate import RecommendationPlan, TransformerPlan, rank_tensors, read_plan
from gnnperf.generate.transformer.read import plan_from
from gnnperf.generate.uses import Hold, retained_bytes
from gnnperf.memory import Part, planned_peak
from research.benchmarks._frame import run_main
from research.benchmarks._results import save_result

BLOCK = {
    "attention": "flash", "key_value_heads": 4, "norm": "rms_norm", "activation": "swiglu", "width": 2816,
    "positions": "rotary", "bias": False, "dropout": False, "tied_embedding": False, "kernels": "eager",
}  # fmt: skip
MODEL = {"layers": 8, "hidden": 1024, "heads": 8, "sequence": 512, "vocabulary": 4096, "dtype": "bfloat16"}
MUST, GOAL = 5.0, 1.5


@dataclass(frozen=True)
class Case:
    """A configuration."""

    kind: str  # group of the table
    plan: TransformerPlan | RecommendationPlan  # see there
    stage: int = 0  # of its pipeline


def case(kind: str, stage: int = 0, **sections: dict[str, Any]) -> Case:
    """A case from what differs from BLOCK and MODEL."""
    ways = sections.get("parallelism", {})
    schedule = {"micro_batch": 1, "recompute": "none", "gradient_dtype": "float32", **sections.get("schedule", {})}
    count = schedule.pop("micro_batches", 1)
    schedule["global_batch"] = count * schedule["micro_batch"] * ways.get("data", 1)
    raw = {
        "model": {**MODEL, **sections.get("model", {})},
        "block": {**BLOCK, **sections.get("block", {})},
        "schedule": schedule,
        **{name: content for name, content in sections.items() if name not in ("model", "block", "schedule")},
    }
    return Case(kind, plan_from(raw, kind), stage)


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _sharded()
    yield from _divided()
    yield from _pipelines()
    yield from _experts()
    yield from _recommenders()


def _sharded() -> Iterator[Case]:
    fsdp, ranks = {"state": "parameters"}, {"data": 8}
    for recompute in ("none", "full"):
        for micro_batch in (1, 4):
            yield case("fsdp2", parallelism=ranks, sharding=fsdp,
                       schedule={"recompute": recompute, "micro_batch": micro_batch})  # fmt: skip
    yield case("fsdp2", parallelism={"data": 64}, sharding=fsdp, schedule={"recompute": "full"})
    yield case("fsdp2, kept", parallelism=ranks, sharding={**fsdp, "reshard_after_forward": False})
    yield case("fsdp2, micro-batches", parallelism=ranks, sharding=fsdp, schedule={"micro_batches": 3})
    yield case("fsdp2, half sums", parallelism=ranks, sharding=fsdp, schedule={"gradient_dtype": "bfloat16"})
    yield case("fsdp2, vocabulary", parallelism=ranks, sharding=fsdp, model={"vocabulary": 64000})
    yield case("fsdp2, long", parallelism=ranks, sharding=fsdp, model={"sequence": 4096})
    yield case("fsdp2, wide", parallelism=ranks, sharding=fsdp, model={"hidden": 2048, "heads": 16, "layers": 4},
               block={"width": 8192}, schedule={"recompute": "full"})  # fmt: skip


def _divided() -> Iterator[Case]:
    yield case("one rank")
    yield case("one rank", schedule={"recompute": "full", "micro_batch": 4})
    yield case("one rank", schedule={"micro_batches": 2, "micro_batch": 2})
    yield case("one rank, large batch", schedule={"micro_batch": 16})
    yield case("one rank, large batch", schedule={"micro_batch": 16, "recompute": "full"})
    yield case("one rank, gelu", block={"activation": "gelu", "key_value_heads": None, "width": None})
    yield case("zero 1", parallelism={"data": 8}, sharding={"state": "optimizer"})
    for tensor in (2, 4):
        for sequence in (False, True):
            yield case("sequence" if sequence else "tensor", parallelism={"tensor": tensor, "sequence": sequence},
                       schedule={"micro_batch": 4})  # fmt: skip
    yield case(
        "sequence", parallelism={"tensor": 4, "sequence": True}, schedule={"micro_batch": 4, "recompute": "full"}
    )


def _pipelines() -> Iterator[Case]:
    ways = {"pipeline": 4}
    for stage in (0, 1, 3):
        yield case("1f1b", stage, parallelism=ways, schedule={"micro_batches": 8})
    yield case("1f1b", 0, parallelism=ways, schedule={"micro_batches": 8, "recompute": "full"})
    for stage in (0, 3):
        yield case("gpipe", stage, parallelism=ways, schedule={"micro_batches": 4, "pipeline": "gpipe"})
    for stage in (0, 2):
        yield case("interleaved", stage, parallelism=ways,
                   schedule={"micro_batches": 8, "pipeline": "interleaved", "chunks": 2})  # fmt: skip


def _experts() -> Iterator[Case]:
    block = {"width": 1408, "kernels": "eager"}
    for expert, recompute in ((1, "none"), (4, "none"), (8, "none"), (8, "full")):
        yield case("experts", parallelism={"data": 8, "expert": expert}, experts={"count": 8, "top_k": 2}, block=block,
                   schedule={"micro_batch": 2, "recompute": recompute})  # fmt: skip


def _recommenders() -> Iterator[Case]:
    tables = [{"name": f"table_{i}", "rows": 100_000, "dim": 64, "pooling": 20} for i in range(16)]
    whole = {table["name"]: i % 8 for i, table in enumerate(tables)}
    by_column = {table["name"]: "column" for table in tables}
    for optimizer, batch, placement in (
        ("sgd", 4096, whole), ("rowwise_adagrad", 16384, whole), ("adam", 4096, whole), ("sgd", 65536, whole),
        ("sgd", 65536, by_column),
    ):  # fmt: skip
        model = {"tables": tables, "bottom": [512, 256, 64], "top": [1024, 512, 1], "optimizer": optimizer}
        raw = {"name": "dlrm", "batch": batch, "ranks": 8, "model": model, "placement": placement}
        plan = read_plan(raw, "dlrm")
        assert isinstance(plan, RecommendationPlan), "it has tables"
        yield Case("recommendation", plan)


def predicted_bytes(of: Case) -> tuple[int, str]:
    """What is requested at the predicted peak, and its op."""
    peak = planned_peak(rank_tensors(of.plan)[of.stage])
    return peak.peak_bytes - peak.parts_bytes.get(Part.ROUNDING, 0), peak.at


def closed_bytes(of: Case) -> int:
    """The baseline: what is there all the time, and what units keep of the passes in flight."""
    tensors = rank_tensors(of.plan)[of.stage]
    always = sum(map(sum, (tensors.parameters_bytes, tensors.gradients_bytes, tensors.state_bytes)))
    most = there = 0
    for each in tensors.stretches:
        if not isinstance(each, Hold):
            there += -retained_bytes(each.pair) if each.backward else retained_bytes(each.pair)
            most = max(most, there)
    return always + most


def counted_bytes(of: Case) -> int:
    """What torch counts."""
    from research.benchmarks import _plan_programs, _recommender_program  # they load torch

    if isinstance(of.plan, RecommendationPlan):
        return _recommender_program.counted_peak_bytes(of.plan)
    return _plan_programs.counted_peak_bytes(of.plan, of.stage)


def main() -> None:
    table = Table("program", "stage", "torch MiB", "plan MiB", "error %", "at", "closed form, error %")
    errors: list[tuple[float, float]] = []
    for one in cases():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fully_shard's, about views of inputs
            counted = counted_bytes(one)
        given, at = predicted_bytes(one)
        errors.append((given / counted - 1, closed_bytes(one) / counted - 1))
        table.add_row(one.kind, str(one.stage), f"{counted / 2**20:.1f}", f"{given / 2**20:.1f}",
                      f"{100 * errors[-1][0]:+.1f}", at, f"{100 * errors[-1][1]:+.1f}")  # fmt: skip
    sizes = 100 * np.abs(np.array(errors))
    save_result("plan_memory", float(sizes[:, 0].mean()), float(sizes[:, 0].max()))
    console = Console(width=140)
    console.print(table)
    console.print(
        f"{len(errors)} configurations: mean of |error| {sizes[:, 0].mean():.1f} % (must {MUST:g} %, goal {GOAL:g} %), "
        f"largest {sizes[:, 0].max():.1f} %; closed form {sizes[:, 1].mean():.1f} %"
    )


if __name__ == "__main__":
    run_main(main)
