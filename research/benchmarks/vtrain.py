"""Iteration times of 1,440 Megatron-LM configurations that gnnperf never ran and has no labels of.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks vtrain

A configuration becomes a graph (gnnperf.generate.transformer); the analytical model and the schedule predict. Known to
them: numbers of the device and its links, constants fitted on public tables of ops and traces, vTrain's own table of
all-reduces. Not known: any iteration time. Next to it what a guess gives, and what labels of the other models give.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import (
    Parallelism,
    Pipeline,
    Recompute,
    Reduction,
    Schedule,
    Transformer,
    TransformerPlan,
)
from gnnperf.gnn import summarize
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ANY_DEVICE, ClusterSpec, DeviceSpec, default_cluster, load_device
from gnnperf.schedule import schedule_with_contention
from research.benchmarks._frame import ERROR_COLUMNS, error_texts, run_main, show
from research.benchmarks._public_runs import mirror
from research.benchmarks._results import save_result

FOLDER = "VIA-Research+vTrain"
VOCABULARY = 50257  # src/config.py
COLUMNS = ("gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "sequence", "tensor", "data", "pipeline",
           "iteration_ms")  # fmt: skip
CONFIG_COLUMNS = COLUMNS[:-1]
RECOMPUTE = {True: Recompute.FULL, False: Recompute.NONE}
REDUCTION = {True: Reduction.BUCKETS, False: Reduction.AT_END}


def configurations(mirror: Path) -> list[TransformerPlan]:
    """One plan per configuration, in the order of their files.

    The vocabulary is the default of upstream's configuration, divided over tensor ranks without padding and without the
    rest (src/model/gpt_modeling.py); its weights are float16 (src/predictor.py sets torch's default dtype), which for
    Megatron-LM means sums of gradients in float16 as well.
    """
    files = sorted(mirror.glob(f"{FOLDER}/config/validation/single/*.json"))
    if not files:
        sys.exit("no configurations of VIA-Research/vTrain: set GNNPERF_DATA_MIRROR to a folder that holds them")
    return [plan_of(json.loads(path.read_text(encoding="utf-8")), path.stem) for path in files]


def plan_of(raw: dict[str, object], name: str) -> TransformerPlan:
    """The plan of one of vTrain's configurations."""
    number = {key: int(value) for key, value in raw.items() if isinstance(value, int)}
    tensor = number["tensor_parallel_size"]
    return TransformerPlan(
        name,
        Transformer(
            number["num_layers"],
            number["hidden_size"],
            number["num_attention_heads"],
            number["max_length"],
            VOCABULARY // tensor * tensor,
            vocabulary_multiple=1,
        ),
        Parallelism(tensor, number["pipeline_parallel_size"], number["data_parallel_size"]),
        Schedule(
            number["global_batch_size"],
            number["micro_batch_size"],
            Pipeline(str(raw["pipeline_scheduling"])),
            recompute=RECOMPUTE[bool(raw["use_checkpoint"])],
            reduction=REDUCTION[bool(raw["use_gradient_bucket"])],
        ),
    )


def columns_of(plans: list[TransformerPlan]) -> pd.DataFrame:
    """[n] the configuration columns of plans, named as in the table of iteration times."""
    rows = [
        (p.parallelism.world_size, p.schedule.global_batch, p.schedule.micro_batch, p.model.hidden, p.model.heads,
         p.model.layers, p.model.sequence, p.parallelism.tensor, p.parallelism.data, p.parallelism.pipeline)
        for p in plans
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(CONFIG_COLUMNS))


def iteration_us(mirror: Path, plans: list[TransformerPlan]) -> np.ndarray:
    """[n] measured time of each plan: labels, of which predictions know nothing."""
    table = pd.read_csv(mirror / FOLDER / "data/ground_truth_single.csv", encoding="utf-8-sig", header=0, names=COLUMNS)
    if table.duplicated(list(CONFIG_COLUMNS)).any():
        sys.exit("ground_truth_single.csv has a configuration twice")
    result = columns_of(plans).merge(table, on=list(CONFIG_COLUMNS), how="left", validate="one_to_one")
    if result["iteration_ms"].isna().any():
        sys.exit("ground_truth_single.csv has no time for some configuration")
    return result["iteration_ms"].to_numpy(float) * 1e3


FIXED_MFU = 0.4  # a common guess
RIDGE = 1e-2  # of standardized columns


def fixed_mfu_us(plans: list[TransformerPlan], device: DeviceSpec) -> np.ndarray:
    """[n] 6 x parameters x tokens FLOPs at a fixed share of the peak of all devices."""
    per_device = device.flops_per_s["float16_matrix"] * FIXED_MFU
    # 12 h^2 per layer and the embedding (Narayanan et al. 2021, equation 2, main terms)
    parameters = [12.0 * p.model.layers * p.model.hidden**2 + p.model.vocabulary * p.model.hidden for p in plans]
    tokens = [p.schedule.global_batch * p.model.sequence / p.parallelism.world_size for p in plans]  # per device
    return 6.0 * np.array(parameters) * np.array(tokens) / per_device * 1e6


def roofline_us(graph: ExecutionGraph, device: DeviceSpec) -> float:
    """Kernels of the busiest rank one after the other, each at peak rates; no links, no host, no pipeline."""
    work = graph.nodes[(graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
    matrix = (work["family"] == "gemm").to_numpy()
    rate = np.where(matrix, device.flops_per_s["float16_matrix"], device.flops_per_s["float32"])
    flops, moved = np.nan_to_num(work["flops"].to_numpy()), work["bytes"].to_numpy()
    each_us = 1e6 * np.maximum(flops / rate, moved / device.memory_bandwidth_bytes_per_s)
    return float(pd.Series(each_us).groupby(work["rank"].to_numpy()).sum().max())


def others_nearest_us(plans: list[TransformerPlan], group: np.ndarray, measured_us: np.ndarray) -> np.ndarray:
    """[n] the nearest configuration of another model, as it was measured (the mean of equally near ones)."""
    columns = log_columns(plans)
    result = np.empty(len(group))
    for i in range(len(group)):
        other = np.flatnonzero(group != group[i])
        distance = np.abs(columns[other] - columns[i]).sum(axis=1)
        near = other[distance <= distance.min() + 1e-9]
        result[i] = np.exp(np.log(measured_us[near]).mean())
    return result


def others_ridge_us(plans: list[TransformerPlan], group: np.ndarray, measured_us: np.ndarray) -> np.ndarray:
    """[n] ridge regression of log time on the logs of the configuration's columns, fitted on the other models."""
    columns, logs, result = log_columns(plans), np.log(measured_us), np.empty(len(group))
    for one in np.unique(group):
        seen = group != one
        center, scale = columns[seen].mean(axis=0), np.maximum(columns[seen].std(axis=0), 1e-9)
        x, mean = (columns[seen] - center) / scale, logs[seen].mean()
        weights = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ (logs[seen] - mean))
        result[~seen] = np.exp(mean + (columns[~seen] - center) / scale @ weights)
    return result


def log_columns(plans: list[TransformerPlan]) -> np.ndarray:
    """[n, k] logs of the columns that differ."""
    table = np.log(columns_of(plans)[list(CONFIG_COLUMNS)].to_numpy(float))
    return table[:, table.std(axis=0) > 0]


DEVICE = "a100_sxm_80gb"  # upstream: A100, eight per node; memory is an assumption
OTHER_DEVICE = "a100_sxm_40gb"
LAWS = "a100_vtrain"  # of its own table of collectives, which has no step time
PARTS = ("tensor", "data", "pipeline", "hidden", "micro_batch", "layers")
MODEL, SPECIFIED, SMALLER = "model", "links by specification", "A100 of 40 GB"


def predicted_us(
    plans: list[TransformerPlan], estimates: dict[str, tuple[AnalyticPredictor, ClusterSpec]]
) -> dict[str, np.ndarray]:
    """[n] step time of each plan by each predictor on its cluster, and the roofline of its graph."""
    result = {name: np.empty(len(plans)) for name in (*estimates, "roofline")}
    for i, plan in enumerate(plans):
        graph = build_plan(plan)
        for name, (predictor, cluster) in estimates.items():
            given = predictor.predict(graph, cluster)
            if given.uncovered_ops or given.isolated is None:
                sys.exit(f"{plan.name}: not covered: {given.uncovered_ops}")
            step = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated)
            result[name][i] = step.schedule.makespan_us
        result["roofline"][i] = roofline_us(graph, load_device(DEVICE))
        if i % 200 == 199:
            print(f"{i + 1} of {len(plans)} graphs", file=sys.stderr, flush=True)
    return result


def main(argv: list[str]) -> None:
    folder = mirror()
    plans = configurations(folder)[:: int(argv[0]) if argv else 1]
    cluster, smaller = (default_cluster(load_device(name)) for name in (DEVICE, OTHER_DEVICE))
    requested = {
        MODEL: (AnalyticPredictor(), replace(cluster, collectives={ANY_DEVICE: LAWS})),
        SPECIFIED: (AnalyticPredictor(), replace(cluster, collectives={})),
        SMALLER: (AnalyticPredictor(), replace(smaller, collectives={ANY_DEVICE: LAWS})),
    }
    estimates = predicted_us(plans, requested)  # before any label is read
    measured = iteration_us(folder, plans)
    group = columns_of(plans).groupby(["hidden", "layers"]).ngroup().to_numpy()  # models are left out together
    estimates |= {
        f"6 N tokens at {FIXED_MFU:.0%} of peak": fixed_mfu_us(plans, cluster.device),
        "nearest configuration, other models' labels": others_nearest_us(plans, group, measured),
        "ridge on columns, other models' labels": others_ridge_us(plans, group, measured),
    }
    _print_errors({name: (result, measured) for name, result in estimates.items()}, "predictor")
    if not argv:
        save_result("vtrain", 100 * summarize(estimates[MODEL], measured).mean_ape)
    columns = columns_of(plans)
    parts = {
        f"{name} {value}": columns[name].to_numpy() == value for name in PARTS for value in np.unique(columns[name])
    }
    _print_errors({name: (estimates[MODEL][rows], measured[rows]) for name, rows in parts.items()}, "model, by part")


def _print_errors(estimates: dict[str, tuple[np.ndarray, np.ndarray]], title: str) -> None:
    printed = Table(title, *ERROR_COLUMNS)
    for name, (result, measured) in estimates.items():
        printed.add_row(name, *error_texts(result, measured))
    show(printed, width=120)


if __name__ == "__main__":
    run_main(main)
