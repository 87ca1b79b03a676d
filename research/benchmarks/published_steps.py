"""Training speeds that others have published for plans like the shipped ones: sharded Llama models on A100 GPUs.

    python -m research.benchmarks published_steps

A few rows, each with the statements of its source and the open points. Nothing is fitted on them. Baseline: every step
reaches half of the peak.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.table import Table

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.read import plan_from
from gnnperf.generate.transformer.sizes import stage_parameters
from gnnperf.hardware import ClusterSpec, conf_dir, default_cluster, load_device, read_yaml
from gnnperf.schedule import schedule_with_contention
from research.benchmarks._frame import run_main, show

DEVICE = "a100_sxm_80gb"
GUESSED_MFU = 0.5
# docs/performance.md of torchtitan: FSDP2 on 64 A100 with 80 GB; it does not name the links (a DGX A100's are taken).
TORCHTITAN = "torchtitan"
# README.md of fms-fsdp: FSDP on 128 A100; 400 Gb/s a machine, from its later version. Sums in bfloat16.
FMS = "fms-fsdp"
FMS_LINK_BYTES_PER_S = 400e9 / 8 / 8  # of each of eight devices


@dataclass(frozen=True)
class Published:
    """One row of a source."""

    source: str
    plan: str
    tokens_per_s: float
    changes: Mapping[str, Mapping[str, object]]


BFLOAT_SUMS = {"gradient_dtype": "bfloat16"}
ROWS = (
    Published(TORCHTITAN, "llama2_13b_fsdp", 2162, {}),
    Published(TORCHTITAN, "llama2_70b_fsdp", 353, {}),
    Published(TORCHTITAN, "llama3_70b_fsdp", 331, {}),
    Published(FMS, "llama2_70b_fsdp", 380, {"parallelism": {"data": 128},
              "schedule": {"micro_batch": 6, "global_batch": 6 * 128, **BFLOAT_SUMS}}),
    Published(FMS, "llama2_70b_fsdp", 772, {"parallelism": {"data": 128}, "model": {"layers": 48},
              "block": {"width": 22016},
              "schedule": {"micro_batch": 8, "global_batch": 8 * 128, **BFLOAT_SUMS}}),
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
    """Machines of eight A100, with the source's link between them where it names one."""
    cluster = default_cluster(load_device(DEVICE))
    if row.source != FMS:
        return cluster
    return replace(cluster, inter=replace(cluster.inter, bandwidth_bytes_per_s=FMS_LINK_BYTES_PER_S))


def predicted_tokens_per_s(plan: TransformerPlan, cluster: ClusterSpec) -> float:
    """Of one device, as the analytical model and the schedule have it."""
    graph = build_plan(plan)
    given = AnalyticPredictor().predict(graph, cluster)
    if given.uncovered_ops or given.isolated is None:
        sys.exit(f"{plan.name}: not covered: {given.uncovered_ops}")
    step_us = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated).schedule.makespan_us
    return tokens(plan) / plan.parallelism.world_size / step_us * 1e6


def tokens(plan: TransformerPlan) -> float:
    """Of a step."""
    return float(plan.schedule.global_batch * plan.model.sequence)


def guessed_tokens_per_s(plan: TransformerPlan, cluster: ClusterSpec) -> float:
    """6 FLOPs per parameter and 12 layers x hidden x sequence of attention per token, at half of the peak."""
    model = plan.model
    per_token = 6.0 * stage_parameters(plan, 0) + 12.0 * model.layers * model.hidden * model.sequence
    return GUESSED_MFU * cluster.device.flops_per_s["bfloat16_matrix"] / per_token


def main(argv: Sequence[str]) -> None:
    """Print every row."""
    printed = Table(
        "source", "model", "samples", "GPUs", "published tokens/s", "model", "error %", "half of peak", "error %"
    )
    for row in ROWS:
        plan, cluster = planned(row), cluster_of(row)
        result, guess = predicted_tokens_per_s(plan, cluster), guessed_tokens_per_s(plan, cluster)
        shown = (result, 100 * (result / row.tokens_per_s - 1), guess, 100 * (guess / row.tokens_per_s - 1))
        name = f"{stage_parameters(plan, 0) / 1e9:.0f} B, {plan.model.sequence} positions"
        printed.add_row(row.source, name, str(plan.schedule.micro_batch), str(plan.parallelism.world_size),
                        f"{row.tokens_per_s:.0f}", *(f"{x:.1f}" for x in shown))  # fmt: skip
    show(printed, width=140)


if __name__ == "__main__":
    run_main(main)
