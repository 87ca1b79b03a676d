"""Training speeds that others have published for the shipped plans and plans like them, next to predictions.

    python -m research.benchmarks published_steps

Each row has the statements of its source; nothing is fitted on them. Peak memory has to fit the published GPUs. Rates
in TFLOP/s are turned into tokens/s by the formula of their source: equation 3 of Narayanan et al. 2021
(arXiv 2104.04473) for Megatron-LM, which counts recomputation; model FLOPs (`gnnperf.generate.step_work`) for the
others. Baseline: every step reaches half of the peak.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from rich.table import Table

from gnnperf.generate import TransformerPlan, rank_tensors, step_work
from gnnperf.generate.transformer.read import plan_from
from gnnperf.hardware import ClusterSpec, conf_dir, default_cluster, load_device, read_yaml
from gnnperf.memory import planned_peak
from gnnperf.shard.parallelism.bound import step_us
from research.benchmarks._frame import run_main, show
from research.benchmarks._results import save_result

A100, H100 = "a100_sxm_80gb", "h100_sxm"
GUESSED_MFU = 0.5
# docs/performance.md of torchtitan: FSDP2 on 64 A100 with 80 GB; it does not name the links (a DGX A100's are taken).
TORCHTITAN = "torchtitan"
# README.md of fms-fsdp: FSDP on 128 A100; 400 Gb/s a machine, from its later version. Sums in bfloat16.
FMS = "fms-fsdp"
FMS_LINK_BYTES_PER_S = 400e9 / 8 / 8  # of each of eight devices
# Table 1 of Narayanan et al. 2021; micro-batches and chunks of Megatron-LM, examples/sc21/run_table_1.sh.
MEGATRON = "Megatron-LM"
# Table 4 of Grattafiori et al. 2024 (arXiv 2407.21783).
LLAMA_3 = "Llama 3"
# megatron/core/transformer/moe/README.md: 468 TFLOP/s, MCore v0.9.
MCORE = "Megatron Core"


@dataclass(frozen=True)
class Published:
    """One row of a source."""

    # source, device: who published it, and what it ran on
    source: str
    device: str
    plan: str  # of conf/plan, before `changes`
    tokens_per_s: float | None = None  # of one device; None: `tflops` is published
    tflops: float | None = None  # of one device, by the formula of the source
    changes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def _megatron(
    layers: int, hidden: int, heads: int, ways: tuple[int, int, int], batch: tuple[int, int], chunks: int, tflops: float
) -> Published:  # fmt: skip
    """A row of table 1; `ways` are tensor, pipeline and data parallel, `batch` is that of a step and of a pass."""
    schedule = {"global_batch": batch[0], "micro_batch": batch[1], "chunks": chunks,
                "pipeline": "interleaved" if chunks > 1 else "1f1b"}  # fmt: skip
    changes: dict[str, Mapping[str, object]] = {
        "model": {"layers": layers, "hidden": hidden, "heads": heads}, "schedule": schedule,
        "parallelism": dict(zip(("tensor", "pipeline", "data"), ways, strict=True)),
    }  # fmt: skip
    return Published(MEGATRON, A100, "megatron_18b", tflops=tflops, changes=changes)


BFLOAT_SUMS = {"gradient_dtype": "bfloat16"}
ROWS = (
    Published(TORCHTITAN, A100, "llama2_13b_fsdp", 2162),
    Published(TORCHTITAN, A100, "llama2_70b_fsdp", 353),
    Published(TORCHTITAN, A100, "llama3_70b_fsdp", 331),
    Published(FMS, A100, "llama2_70b_fsdp", 380, changes={"parallelism": {"data": 128},
              "schedule": {"micro_batch": 6, "global_batch": 6 * 128, **BFLOAT_SUMS}}),
    Published(FMS, A100, "llama2_70b_fsdp", 772, changes={"parallelism": {"data": 128}, "model": {"layers": 48},
              "block": {"width": 22016},
              "schedule": {"micro_batch": 8, "global_batch": 8 * 128, **BFLOAT_SUMS}}),
    _megatron(24, 2304, 24, (1, 1, 32), (512, 16), 1, 137),
    _megatron(30, 3072, 32, (2, 1, 32), (512, 16), 1, 138),
    _megatron(36, 4096, 32, (4, 1, 32), (512, 16), 1, 142),
    _megatron(40, 6144, 48, (8, 1, 32), (1024, 8), 1, 135),
    _megatron(48, 8192, 64, (8, 2, 32), (1536, 4), 1, 138),
    _megatron(60, 10240, 80, (8, 4, 32), (1792, 2), 3, 140),
    _megatron(80, 12288, 96, (8, 8, 24), (2304, 2), 2, 148),
    Published(LLAMA_3, H100, "gpt_405b", tflops=400),
    Published(LLAMA_3, H100, "gpt_405b", tflops=380, changes={"model": {"sequence": 131072},
              "parallelism": {"data": 8, "context": 16, "context_exchange": "all_gather"},
              "schedule": {"global_batch": 128}}),
    Published(MCORE, H100, "mixtral_8x7b", tflops=468),
)  # fmt: skip


def planned(row: Published) -> TransformerPlan:
    """The plan of a row."""
    raw = read_yaml(conf_dir("plan") / f"{row.plan}.yaml")
    for section, settings in row.changes.items():
        result = raw.get(section, {})
        assert isinstance(result, dict), "a section is a mapping"
        raw[section] = {**result, **settings}
    return plan_from(raw, row.plan)


def cluster_of(row: Published) -> ClusterSpec:
    """Machines of eight devices, with the source's link between them where it names one."""
    cluster = default_cluster(load_device(row.device))
    if row.source != FMS:
        return cluster
    return replace(cluster, inter=replace(cluster.inter, bandwidth_bytes_per_s=FMS_LINK_BYTES_PER_S))


def published_tokens_per_s(row: Published, plan: TransformerPlan) -> float:
    """Of one device."""
    if row.tokens_per_s is not None:
        return row.tokens_per_s
    assert row.tflops is not None, "one of the two is published"
    per_token = equation_3_flops(plan) if row.source == MEGATRON else model_flops(plan) / tokens(plan)
    return row.tflops * 1e12 / per_token


def equation_3_flops(plan: TransformerPlan) -> float:
    """Of a token: 96 l h^2 (1 + s / 6h + V / 16lh), all layers computed twice in forward direction."""
    model = plan.model
    layers, hidden = model.layers, model.hidden
    return 96.0 * layers * hidden**2 * (
        1.0 + model.sequence / (6.0 * hidden) + model.vocabulary / (16.0 * layers * hidden)
    )  # fmt: skip


def model_flops(plan: TransformerPlan) -> float:
    """Of a step."""
    flops = step_work(plan).model_flops
    assert flops is not None, "a transformer's is known"
    return flops


def tokens(plan: TransformerPlan) -> float:
    """Of a step."""
    return float(plan.schedule.global_batch * plan.model.sequence)


def main() -> None:
    names = ("GPUs", "peak GiB of", "published tokens/s", "plan", "error %", "half of peak", "error %")
    printed = Table("source", "model", *names)
    errors: list[tuple[float, float]] = []
    for row in ROWS:
        plan, cluster = planned(row), cluster_of(row)
        published = published_tokens_per_s(row, plan)
        result = tokens(plan) / plan.parallelism.world_size / step_us(plan, cluster) * 1e6  # of one device
        peak = cluster.device.flops_per_s["bfloat16_matrix"]
        guess = GUESSED_MFU * peak / (model_flops(plan) / tokens(plan))
        errors.append((result / published - 1, guess / published - 1))
        name = f"{row.plan} {plan.model.layers} x {plan.model.hidden}"
        peak_gib = max(planned_peak(held).peak_bytes for held in rank_tensors(plan)) / 2**30  # of the fullest rank
        memory = f"{peak_gib:.1f} of {cluster.device.memory_bytes / 2**30:.0f}"
        printed.add_row(row.source, name, f"{plan.parallelism.world_size:,}", memory, f"{published:,.0f}",
                        f"{result:,.0f}", f"{100 * errors[-1][0]:+.1f}", f"{guess:,.0f}",
                        f"{100 * errors[-1][1]:+.1f}")  # fmt: skip
    mean = 100 * np.abs(np.array(errors)).mean(axis=0)
    save_result("published_steps", float(mean[0]))
    show(printed, width=140)
    print(f"mean of |error|, {len(ROWS)} rows: plan {mean[0]:.1f} %, half of the peak {mean[1]:.1f} %")


if __name__ == "__main__":
    run_main(main)
