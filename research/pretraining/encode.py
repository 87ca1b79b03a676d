"""Rows -> what the network takes: features of their graphs, base, waits, labels, all rows in one table.

A batch is any choice of rows: isolated nodes, each with its device. So features are made once, graph by graph, and
batches are drawn from tables of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.core import WORK_TYPES, NodeType, Relation, Source
from gnnperf.gnn import features
from gnnperf.gnn.data.features import REVERSE_PREFIX
from gnnperf.gnn.data.floors import TypedFloors
from gnnperf.gnn.data.normalizer import Normalizer, fit_normalizer
from gnnperf.gnn.data.numbers import DEVICE_NAMES, LINK_NAMES, WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary, fit_vocabulary
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec, DeviceSpec, default_cluster
from research.pretraining.forms import FormConstants, base_us
from research.pretraining.graphs import OpGraph, op_graphs
from research.pretraining.observation import Observation, Observed
from research.pretraining.rows import spec_of

COMPUTE, DEVICE = str(NodeType.COMPUTE), str(NodeType.DEVICE)
NO_FLOORS = TypedFloors({}, {}, 1.0)  # every row has a base
PLACE = (DEVICE, f"{REVERSE_PREFIX}{Relation.RUNS_ON}", COMPUTE)


@dataclass(frozen=True)
class EncodedRows:
    """[n] rows as the network takes them, raw (not normalized).

    Attributes:
        x: [n, num_features] float32.
        codes: [n, num_fields] int64.
        device: [n] int64, row of `device_x`.
        device_x: [num_devices, num_device_features] float32.
        base_us: [n] float64 of the device, without the wait of the method.
        log_label: [n] float64, log us as measured.
        observed: waits of the method.
    """

    x: Tensor
    codes: Tensor
    device: Tensor
    device_x: Tensor
    base_us: Tensor
    log_label: Tensor
    observed: Observed

    def part(self, places: Tensor) -> EncodedRows:
        return EncodedRows(
            self.x[places], self.codes[places], self.device[places], self.device_x, self.base_us[places],
            self.log_label[places], self.observed.part(places),
        )  # fmt: skip

    def data(self) -> HeteroData:
        """One graph of isolated nodes, each on its device; the other node types are there without nodes."""
        data = HeteroData()
        for node_type in map(str, WORK_TYPES):
            data[node_type].x = self.x[:0]
            data[node_type].codes = self.codes[:0]
        data[COMPUTE].x, data[COMPUTE].codes = self.x, self.codes
        data[DEVICE].x = self.device_x
        data[str(NodeType.LINK)].x = torch.zeros((0, len(LINK_NAMES)))
        data[PLACE].edge_index = torch.stack([self.device, torch.arange(len(self.device))])  # [2, n]
        return data

    def log_us(self, residual: Tensor) -> Tensor:
        """[n] log us that the method reads, of [n] log(device latency / base)."""
        return self.observed.log_us(self.base_us.log() + residual)


def words_of(rows: pd.DataFrame) -> Vocabulary:
    return fit_vocabulary([made.graph.nodes for made in op_graphs(rows)])


def encode(
    rows: pd.DataFrame, vocabulary: Vocabulary, constants: FormConstants, observation: Observation
) -> EncodedRows:
    """Rows of research.pretraining.rows.usable -> tensors.

    Args:
        rows: [n].
        vocabulary: words of the training rows.
        constants: of the base.
        observation: of the measuring methods.
    """
    return _encoded(rows, base_us(rows, constants), spec_of, vocabulary, observation)


def encode_calls(
    rows: pd.DataFrame, base: np.ndarray, device: DeviceSpec, vocabulary: Vocabulary, observation: Observation
) -> EncodedRows:
    """Rows that stand for op calls (research.pretraining.calls) -> tensors; labels are NaN.

    Args:
        rows: [n].
        base: [n] us, the analytical answer.
        device: requested; it need not be in the catalog.
        vocabulary: words of the training rows.
        observation: of the measuring methods.
    """
    return _encoded(rows, base, lambda _: device, vocabulary, observation)


def _encoded(
    rows: pd.DataFrame, base: np.ndarray, device_of: Callable[[str], DeviceSpec], vocabulary: Vocabulary,
    observation: Observation,
) -> EncodedRows:  # fmt: skip
    names = sorted(rows["device"].unique())
    x = torch.zeros((len(rows), len(WORK_NAMES)))
    codes = torch.zeros((len(rows), len(FIELDS)), dtype=torch.int64)
    device_x = torch.zeros((len(names), len(DEVICE_NAMES)))
    for made in op_graphs(rows):
        name = made.graph.device_names[0]
        data = _features(made, base, default_cluster(device_of(name)), vocabulary)
        places = torch.from_numpy(made.places)
        x[places], codes[places] = data[COMPUTE].x, data[COMPUTE].codes
        device_x[names.index(name)] = data[DEVICE].x[0]
    return EncodedRows(
        x, codes, torch.from_numpy(np.searchsorted(names, rows["device"].to_numpy(str))), device_x,
        torch.from_numpy(base), torch.from_numpy(np.log(rows["latency_us"].to_numpy(float))), observation.of(rows),
    )  # fmt: skip


def fit_row_normalizer(rows: EncodedRows, dropped: Sequence[str]) -> Normalizer:
    """Statistics of training rows; what a view drops (work and device features by name) never reaches the network."""
    result = fit_normalizer([rows.data()])
    scale = dict(result.scale)
    for node_type, names in ((COMPUTE, WORK_NAMES), (DEVICE, DEVICE_NAMES)):
        away = torch.tensor([name in dropped for name in names])
        scale[node_type] = torch.where(away, torch.full_like(scale[node_type], float("inf")), scale[node_type])
    return Normalizer(result.mean, scale, result.low, result.high)


def _features(made: OpGraph, base: np.ndarray, cluster: ClusterSpec, vocabulary: Vocabulary) -> HeteroData:
    graph = made.graph
    latency = np.zeros(graph.num_nodes)  # hardware nodes take none
    latency[: len(made.places)] = base[made.places]
    return features(graph, cluster, _as_prediction(graph, latency), vocabulary, NO_FLOORS)


def _as_prediction(graph: ExecutionGraph, latency_us: np.ndarray) -> Prediction:
    unknown = np.full(graph.num_nodes, np.nan)
    return Prediction(
        graph=graph, latency_us=latency_us, lag_us=np.zeros(len(graph.edges)),
        source=np.full(graph.num_nodes, Source.ANALYTIC, dtype=object), analytic_latency_us=latency_us,
        latency_low_us=unknown, latency_high_us=unknown, uncovered_ops={},
    )  # fmt: skip
