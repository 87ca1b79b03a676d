"""First in the fallback order: latencies that the user measured, op by op, in a table of `gnnperf calibrate --ops`.

A node takes a row's latency where op, shapes of its tensors and dtype are the row's and the row times the same thing:
on a GPU the device's own time of the op's only kernel, on a CPU the call of an op that calls no other.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import OP, OpRow, read_op_rows
from gnnperf.core import InputError, NodeType, Source
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec, match_device

FORWARD = "forward"
Call = tuple[str, tuple[tuple[int, ...], ...], str]  # op, shapes of its tensors, dtype


@dataclass(frozen=True)
class MeasuredPredictor:
    """Predictions for calls of the table on the table's device, and for nothing else."""

    analytic: Predictor  # shows lags, and what overlapping work takes from each other: the calls ran in isolation
    gpu_us: Mapping[Call, float]  # call -> latency of the kernel; the median where a table has several rows
    cpu_us: Mapping[Call, float]  # call -> latency of the call on a CPU, likewise
    device: str  # name of the table's device
    where: str  # the file

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latencies of nodes in the table; NaN elsewhere. Raises InputError: it was measured on another device."""
        table_us = self._table_of(cluster)
        base = self.analytic.predict(graph, cluster)
        latency_us = _result_us(graph.nodes, table_us)  # [num_nodes]
        source = np.where(np.isfinite(latency_us), Source.MEASURED, Source.UNCOVERED).astype(object)
        return base.with_latencies(latency_us, source)

    def _table_of(self, cluster: ClusterSpec) -> Mapping[Call, float]:
        named, requested = match_device(self.device), cluster.device
        if named is not None and named.name != requested.name:
            raise InputError(f"was measured on {self.device}, the prediction is for {requested.name}", where=self.where,
                             remedy="measure there: gnnperf calibrate --ops; or leave measured= out")  # fmt: skip
        result = self.cpu_us if requested.kind == "cpu" else self.gpu_us
        if not result:
            given = "calls on a CPU" if requested.kind == "cpu" else "the device's own time (launch_included = false)"
            raise InputError(f"has no row that shows {given}, as {requested.name} needs it", where=self.where)
        return result


def read_measured(path: Path, analytic: Predictor) -> MeasuredPredictor:
    """A table of `gnnperf calibrate`, or one of the user's own with op, shapes, dtypes, latency_us and device."""
    table, rows = read_op_rows(path)
    devices = sorted(set(table["device"].dropna().astype(str))) if "device" in table else []
    if len(devices) != 1:
        sentences = f"names {len(devices)} devices" + (f": {', '.join(devices)}" if devices else "")
        raise InputError(sentences, where=f"{path}, column device", allowed="the one that all rows were measured on")
    gpu_us, cpu_us = _medians(rows, launch_included=False), _medians(rows, launch_included=True)
    if not gpu_us and not cpu_us:
        raise InputError("no row is a measured forward op", where=str(path), remedy="gnnperf calibrate --ops makes one")
    return MeasuredPredictor(analytic, gpu_us, cpu_us, devices[0], str(path))


def _medians(rows: Iterable[OpRow], launch_included: bool) -> dict[Call, float]:
    result: dict[Call, list[float]] = {}
    for row in rows:
        if row.kind == OP and row.direction == FORWARD and row.launch_included == launch_included and row.measured_us:
            shapes = tuple(shape for shape in row.shapes if shape)
            result.setdefault((row.op, shapes, _dtype(row.dtypes)), []).append(row.measured_us)
    return {call: float(np.median(values)) for call, values in result.items()}


def _dtype(dtypes: Iterable[str]) -> str:
    """As graphs tell it: of the first floating-point tensor, else of the first."""
    named = list(dtypes)
    return next((d for d in named if "float" in d), named[0] if named else "")


def _result_us(nodes: pd.DataFrame, table_us: Mapping[Call, float]) -> np.ndarray:
    """[num_nodes]; calls are looked up once each."""
    single = (nodes["node_type"] == NodeType.COMPUTE) & (nodes["num_siblings"] <= 1) & (nodes["opened_ops"] <= 0)
    rows = nodes.loc[single, ["op_name", "input_dims", "dtype"]].astype(object)
    result_us = {key: table_us.get((str(key[0]), tensor_shapes(key[1]), str(key[2])), np.nan)
                for key in set(rows.itertuples(index=False, name=None)) if isinstance(key[1], str)}  # fmt: skip
    latency_us = np.full(len(nodes), np.nan)
    latency_us[single.to_numpy()] = [result_us.get(key, np.nan) for key in rows.itertuples(index=False, name=None)]
    return latency_us


@cache
def tensor_shapes(input_dims: str) -> tuple[tuple[int, ...], ...]:
    """Shapes of the tensors among a call's arguments, lists of tensors one after the other."""
    result: list[tuple[int, ...]] = []

    def collect(dims: Any) -> None:
        if isinstance(dims, list) and dims and all(isinstance(edge, int) for edge in dims):
            result.append(tuple(dims))
        elif isinstance(dims, list):
            for inner in dims:
                collect(inner)

    collect(json.loads(input_dims))
    return tuple(result)
