"""What anybody could answer about vTrain's iteration times without a graph."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import DeviceSpec
from research.benchmarks._vtrain import CONFIG_COLUMNS, columns_of

FIXED_MFU = 0.4  # a common guess
RIDGE = 1e-2  # of standardized columns


def parameters(plan: TransformerPlan) -> float:
    """Of the whole model: 12 h^2 per layer and the embedding (Narayanan et al. 2021, equation 2, main terms)."""
    return 12.0 * plan.model.layers * plan.model.hidden**2 + plan.model.vocabulary * plan.model.hidden


def fixed_mfu_us(plans: list[TransformerPlan], device: DeviceSpec) -> np.ndarray:
    """[n] 6 x parameters x tokens FLOPs at a fixed share of the peak of all devices."""
    peak = device.flops_per_s["float16_matrix"] * FIXED_MFU
    return np.array([6.0 * parameters(p) * p.schedule.global_batch * p.model.sequence / peak / p.parallelism.world_size
                     for p in plans]) * 1e6  # fmt: skip


def roofline_us(graph: ExecutionGraph, device: DeviceSpec) -> float:
    """Kernels of the busiest rank one after the other, each at peak rates; no links, no host, no pipeline."""
    work = graph.nodes[(graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
    matrix = (work["family"] == "gemm").to_numpy()
    rate = np.where(matrix, device.flops_per_s["float16_matrix"], device.flops_per_s["float32"])
    flops, moved = np.nan_to_num(work["flops"].to_numpy()), work["bytes"].to_numpy()
    each_us = 1e6 * np.maximum(flops / rate, moved / device.memory_bandwidth_bytes_per_s)
    return float(pd.Series(each_us).groupby(work["rank"].to_numpy()).sum().max())


def models(plans: list[TransformerPlan]) -> np.ndarray:
    """[n] which model a configuration has: what is left out together."""
    table = columns_of(plans)
    return table.groupby(["hidden", "layers"]).ngroup().to_numpy()


def others_constant_us(group: np.ndarray, measured_us: np.ndarray) -> np.ndarray:
    """[n] the geometric mean of the other models' times."""
    result = np.empty(len(group))
    for one in np.unique(group):
        result[group == one] = np.exp(np.log(measured_us[group != one]).mean())
    return result


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
        result[~seen] = np.exp(ridge(columns[seen], logs[seen], columns[~seen]))
    return result


def ridge(seen: np.ndarray, target: np.ndarray, requested: np.ndarray) -> np.ndarray:
    """[m] answers for `requested` [m, k], fitted on `seen` [n, k] and `target` [n]."""
    center, scale = seen.mean(axis=0), np.maximum(seen.std(axis=0), 1e-9)
    x, mean = (seen - center) / scale, target.mean()
    weights = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ (target - mean))
    return mean + (requested - center) / scale @ weights


def log_columns(plans: list[TransformerPlan]) -> np.ndarray:
    """[n, k] logs of the columns that differ."""
    table = np.log(columns_of(plans)[list(CONFIG_COLUMNS)].to_numpy(float))
    return table[:, table.std(axis=0) > 0]
