"""AnalyticPredictor: the analytical prediction for every node of a graph; copies and graph launches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import numpy as np
import pandas as pd

from gnnperf.analytic.collective.constants import collective_models_of
from gnnperf.analytic.collective.formulas import collective_us, fitted_collective_us
from gnnperf.analytic.constants import AnalyticConstants, ContentionConstants, default_constants, default_contention
from gnnperf.analytic.cpu.counts import between_bytes
from gnnperf.analytic.host_fit import host_us, lag_us, overhead_us
from gnnperf.analytic.kernels.nodes import compute_nodes_us
from gnnperf.core import NodeType, Relation, Segment, Source
from gnnperf.graph import CallClass, ExecutionGraph, Isolated, Prediction, TableCounts, call_class, uncovered_ops
from gnnperf.hardware import ClusterSpec, LinkSpec, ranks_per_machine

# Memory nodes: copies over the link they cross, device copies and memsets over device memory; host arithmetic.
# Arithmetic on the host next to a GPU is an optimizer whose state lies there:
#
#     latency = bytes / (sockets x bandwidth of a socket x HOST_SHARE / ranks of the node)
#
# An update like Adam's has half an operation per byte, vectorized and on all cores (DeepSpeed, csrc/adam): memory is
# what it waits for. All ranks of a node update at the same time and share its sockets evenly.

# Of the channels' peak that mixed reads and writes sustain: an estimate, as of the shipped links; no table of host
# updates is at hand that it could be fitted to.
HOST_SHARE = 0.80


class CopyPath(StrEnum):
    """What a copy crosses."""

    HOST = "host"
    HOST_PAGEABLE = "host_pageable"
    PEER = "peer"
    STORAGE = "storage"  # between host memory and a drive
    DEVICE = "device"  # within one memory: read and written
    FILL = "fill"  # written only


# (what the profiler writes, lower case) -> path, first match wins: "Memcpy HtoD (Pageable -> Device)", ROCm's
# "CopyHostToDevice", "Memset (Device)"; "Storage read (...)" is what plans write. Direction is part of what a copy is,
# unlike a kernel's name.
_NAMES = (
    ("storage", CopyPath.STORAGE),
    ("pageable", CopyPath.HOST_PAGEABLE),
    ("htod", CopyPath.HOST), ("dtoh", CopyPath.HOST), ("hosttodevice", CopyPath.HOST), ("devicetohost", CopyPath.HOST),
    ("ptop", CopyPath.PEER), ("peertopeer", CopyPath.PEER),
    ("dtod", CopyPath.DEVICE), ("devicetodevice", CopyPath.DEVICE),
    ("memset", CopyPath.FILL), ("fillbuffer", CopyPath.FILL),
)  # fmt: skip


def path_of(event_name: str | None) -> CopyPath | None:
    """What a copy of this name crosses; None unknown."""
    plain = (event_name or "").lower().replace(" ", "").replace("_", "")
    return next((path for text, path in _NAMES if text in plain), None)


def copy_us(
    paths: np.ndarray, moved_bytes: np.ndarray, cluster: ClusterSpec, constants: AnalyticConstants
) -> np.ndarray:
    """Latency of memory nodes: start-up + link latency + bytes / sustained bandwidth."""
    device = cluster.device
    memory = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share
    host = _sustained(cluster.host_link)
    cost = {  # path -> (latency us, us per byte)
        CopyPath.HOST: (cluster.host_link.latency_us, 1e6 / host),
        CopyPath.HOST_PAGEABLE: (cluster.host_link.latency_us, 1e6 / (host * constants.pageable_share)),
        CopyPath.PEER: (cluster.intra.latency_us, 1e6 / _sustained(cluster.intra)),
        CopyPath.DEVICE: (0.0, 2e6 / memory),
        CopyPath.FILL: (0.0, 1e6 / memory),
    }
    if cluster.storage is not None:
        cost[CopyPath.STORAGE] = (cluster.storage.latency_us, 1e6 / _sustained(cluster.storage))
    fixed, slope = np.full(len(paths), np.nan), np.full(len(paths), np.nan)  # [n]
    for path, (latency, per_byte) in cost.items():
        here = paths == path  # [n]
        fixed[here], slope[here] = latency, per_byte
    return constants.copy_floor_us[device.kind] + fixed + slope * moved_bytes


def _sustained(link: LinkSpec) -> float:
    return link.bandwidth_bytes_per_s * link.sustained_bandwidth_share


def host_work_us(moved_bytes: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """[n] us for [n] bytes read and written in host memory; NaN where the cluster does not state its host's memory."""
    rate = cluster.host_memory_bytes_per_s
    if rate is None:
        return np.full(len(moved_bytes), np.nan)
    return np.asarray(moved_bytes / (rate * HOST_SHARE) * 1e6)


# Graph launches: one call that starts many kernels costs a call and, per kernel, much less than a launch of its own.
# latency of the call = call + kernels x per kernel        host |T4 cudaGraphLaunch|
#                                                          stream     |--- 497 kernels ---|

CALL, KERNEL = "call", "kernel"  # keys of AnalyticConstants.graph_launch_us
_FUSED = re.compile(r"\[(\d+) kernels\]$")  # how the graph names the work of a graph launch


def launched_kernels(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] kernels that each graph launch starts; 0 for all other nodes."""
    nodes, edges = graph.nodes, graph.edges
    names = nodes["event_name"].astype(object).where(nodes["event_name"].notna(), "")
    launches = (nodes["node_type"] == NodeType.HOST).to_numpy() & (nodes["segment"] == Segment.T4).to_numpy()
    kinds = [name for name in names[launches].unique() if call_class(name) is CallClass.GRAPH_LAUNCH]  # a few
    launches &= names.isin(kinds).to_numpy()
    if not launches.any():
        return np.zeros(len(nodes))
    started = edges[(edges["relation"] == Relation.LAUNCHES).to_numpy()]
    kernels = names.str.extract(_FUSED, expand=False).fillna(1).to_numpy(float)  # [num_nodes]
    src, dst = started["src"].to_numpy(), started["dst"].to_numpy()
    return np.where(launches, np.bincount(src, weights=kernels[dst], minlength=len(nodes)), 0.0)


def graph_launch_us(kernels: np.ndarray, constants: AnalyticConstants) -> np.ndarray:
    """[n] us of calls that start so many kernels."""
    return constants.graph_launch_us[CALL] + kernels * constants.graph_launch_us[KERNEL]


WITHOUT_TIME = (NodeType.DEVICE, NodeType.LINK)
SOURCES = np.array([str(Source.ANALYTIC), str(Source.UNCOVERED)], dtype=object)


@dataclass(frozen=True)
class AnalyticPredictor:
    """Closed forms of kernels on GPUs, prices of ops on CPUs, latency-bandwidth collectives, mean host overheads.

    Collectives go by the models that the cluster names (`ClusterSpec.collectives`), else by specification.
    """

    # what the model takes as given; None: what ships for the device's kind, which covers devices of another kind in any
    # case
    constants: AnalyticConstants | None = None
    # what overlapping work takes from each other. Latencies are of each op by itself.
    contention: ContentionConstants = field(default_factory=default_contention)

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latency of every node and lag of every edge on `cluster`; NaN and `uncovered` where there is no ground.

        Raises InputError: an edge's lag class has no constant.
        """
        latency = self.latency_us(graph.nodes, cluster, graph.tables)  # [num_nodes]
        kernels = launched_kernels(graph)  # [num_nodes] what a graph launch costs depends on what it launches
        if kernels.any():
            launch_us = graph_launch_us(kernels, self._constants(cluster)) / cluster.host_speed
            latency = np.where(kernels > 0, launch_us, latency)
        return self.with_latencies(graph, cluster, latency)

    def with_latencies(self, graph: ExecutionGraph, cluster: ClusterSpec, latency: np.ndarray) -> Prediction:
        """The prediction with latencies [num_nodes] us that `predict` gave before; they are not estimated again."""
        unknown = np.full(graph.num_nodes, np.nan)
        return Prediction(
            graph=graph,
            latency_us=latency,
            mean_latency_us=latency.copy(),  # contention stretches what is usual less than what a schedule adds up
            lag_us=lag_us(graph.edges["lag_class"], cluster.device.kind, self._constants(cluster)),
            source=SOURCES[np.isnan(latency).astype(np.intp)],
            analytic_latency_us=latency.copy(),
            latency_low_us=unknown,
            latency_high_us=unknown.copy(),
            uncovered_ops=uncovered_ops(graph, latency),
            isolated=Isolated(np.ones(graph.num_nodes, dtype=bool), self.contention.on(cluster)),
        )

    def _constants(self, cluster: ClusterSpec) -> AnalyticConstants:
        """What was given, or what ships where nothing was given or it holds for another kind of device."""
        kind, given = cluster.device.kind, self.constants
        return default_constants(kind) if given is None or given.device_kind not in ("", kind) else given

    def latency_us(self, nodes: pd.DataFrame, cluster: ClusterSpec, tables: Sequence[TableCounts] = ()) -> np.ndarray:
        """[num_nodes] us for a table of nodes (schema.NODE_COLUMNS); NaN where unknown, 0 for hardware nodes.

        `tables`: how embedding tables were accessed, where that was counted (`ExecutionGraph.tables`).
        """
        code, distinct = pd.factorize(nodes["node_type"])
        types = np.asarray(distinct, dtype=str)[code]  # [num_nodes]
        latency = np.full(len(nodes), np.nan)
        latency[np.isin(types, WITHOUT_TIME)] = 0.0
        for node_type, estimate in (
            (NodeType.HOST, self._host),
            (NodeType.COMPUTE, partial(self._compute, tables=tables)),
            (NodeType.MEMORY, self._memory),
            (NodeType.COLLECTIVE, self._collective),
            (NodeType.COMM, self._comm),
        ):
            here = types == node_type
            if here.any():
                latency[here] = estimate(nodes[here], cluster)
        return latency

    def _host(self, nodes: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
        overheads, moved = host_us(nodes, self._constants(cluster), cluster.host_speed), nodes["bytes"].to_numpy()
        works = moved > 0  # [n] arithmetic on the host, of plans; overheads have no bytes
        return np.where(works, host_work_us(moved, cluster), overheads)

    def _compute(self, nodes: pd.DataFrame, cluster: ClusterSpec, tables: Sequence[TableCounts]) -> np.ndarray:
        constants = self._constants(cluster)
        if cluster.device.kind == "gpu" or constants.op_prices is None:
            return compute_nodes_us(nodes, cluster.device, constants.roofline_power, tables)
        return constants.op_prices.latency_us(nodes.assign(between_bytes=between_bytes(nodes)), cluster.device)

    def _memory(self, nodes: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
        code, names = pd.factorize(nodes["event_name"].astype(object), use_na_sentinel=True)
        paths = np.array([None, *(path_of(str(n)) for n in names)], dtype=object)[code + 1]  # [n]
        return copy_us(paths, nodes["bytes"].to_numpy(), cluster, self._constants(cluster))

    def _comm(self, nodes: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
        """Arriving takes no time of its own; leaving takes what ranks took on average after the first one left."""
        arrives = (nodes["segment"] == Segment.ARRIVE).to_numpy()
        return np.where(arrives, 0.0, overhead_us(nodes, self._constants(cluster)))

    def _collective(self, nodes: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
        """[n] us. A group that has fewer ranks on a machine than there are sees machines of so many ranks only."""
        size, first, stride = (nodes[c].to_numpy() for c in ("group_size", "group_first", "group_stride"))
        together = ranks_per_machine(size, first, stride, cluster.ranks_per_node)  # [n]
        kinds, message_bytes = nodes["collective"].astype(object).to_numpy(), nodes["message_bytes"].to_numpy()
        constants, models, result = self._constants(cluster), collective_models_of(cluster), np.empty(len(nodes))
        for count in np.unique(together):
            here = together == count
            calls = kinds[here], message_bytes[here], size[here], replace(cluster, ranks_per_node=int(count)), constants
            result[here] = collective_us(*calls) if models is None else fitted_collective_us(*calls, models)
        return result
