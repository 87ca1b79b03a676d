"""Host work as the trace itself took it, moved to the hosts that are predicted for (Lin et al. 2022, section 3.2).

host     a node takes the mean of its kind (segment and op) in this trace, by the ratio of the two hosts' speeds
others   whoever answers

Two hosts, or two versions of a framework, differ by more than any model of ops tells; the one that a trace was taken
on shows in it. So a trace that is asked about on other devices need not have its host work guessed. On the hardware
that it was taken on its step time is then, to that part, no prediction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.analytic import AnalyticConstants, fit_host_overheads, launched_kernels, overhead_keys, overhead_us
from gnnperf.core import NodeType, Source
from gnnperf.graph import REASONS, ExecutionGraph, Prediction, Predictor, only, uncovered_ops
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.config import Hosts
from gnnperf.predict.target import Target, choose_target

MOVED = "such host work took {ratio:.2f} times as long in this trace"
BY_TRACE = "Host work is told by this trace, {moved} (hosts=model: by the model)."
SAME = "The trace was taken on this hardware: as far as host work goes the step time is no independent prediction."


@dataclass(frozen=True)
class TraceHosts:
    """Host nodes by the trace, all others by `base`.

    Attributes:
        overheads: of the trace, by segment and op; of nodes without an op, by segment.
        traced: the cluster that the trace is taken to have run on.
        base: who answers for all else.
    """

    overheads: AnalyticConstants
    traced: ClusterSpec
    base: Predictor

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """The base's answer with host nodes of the trace's; ops and calls that the trace has none of are the base's."""
        ratio = host_ratio(self.traced, cluster)
        told_us = self._overheads_us(graph) / ratio
        return _over(
            self.base.predict(graph, cluster),
            told_us,
            REASONS[Source.TRACE] if ratio == 1 else MOVED.format(ratio=ratio),
        )

    def _overheads_us(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] as traced; NaN: not told. What a graph launch takes depends on what it launches."""
        nodes, told_us = graph.nodes, np.full(graph.num_nodes, np.nan)
        host = (nodes["node_type"] == NodeType.HOST).to_numpy() & (launched_kernels(graph) == 0)
        host &= ~(nodes["bytes"].to_numpy() > 0)  # arithmetic on the host
        rows = nodes[host]
        of_kind_us = overhead_us(rows, replace(self.overheads, segment_us={}))
        nameless = overhead_keys(rows).isna().to_numpy()
        told_us[host] = np.where(nameless, overhead_us(rows, self.overheads), of_kind_us)
        return told_us


def who_tells(asked: Hosts, target: Target) -> Hosts:
    """Hosts.auto decided: the trace of a GPU, if another GPU is asked about. On CPUs hosts are the devices."""
    if asked is not Hosts.auto:
        return asked
    traced = target.traced
    moves = traced is not None and not target.same_hardware
    on_gpus = moves and traced is not None and traced.kind == target.cluster.device.kind == "gpu"
    return Hosts.trace if on_gpus else Hosts.model


def with_hosts(base: Predictor, graph: ExecutionGraph, hosts: Hosts, target: Target) -> Predictor:
    """The predictor, host work told by the trace if it is to."""
    return base if hosts is Hosts.model else trace_hosts([graph], traced_cluster(graph, target), base)


def traced_cluster(graph: ExecutionGraph, target: Target) -> ClusterSpec:
    """The default one of the trace's device; of an unknown device, the one asked about."""
    return target.cluster if target.traced is None else choose_target(graph, None, None).cluster


def trace_hosts(graphs: Iterable[ExecutionGraph], traced: ClusterSpec, base: Predictor) -> TraceHosts:
    """Overheads of these graphs, all steps together; even one node tells of its op, since steps may be few."""
    return TraceHosts(fit_host_overheads(graphs, AnalyticConstants(), min_samples=1), traced, base)


def host_ratio(traced: ClusterSpec, asked: ClusterSpec) -> float:
    """Speed of the hosts asked about, relative to the traced ones.

    By single-thread speeds where both clusters name their processors, whatever `host_speed` says, which is relative to
    another host; else by `host_speed`.
    """
    before, after = traced.host, asked.host
    if before is None or after is None or before == after:
        return asked.host_speed / traced.host_speed
    return after.single_thread_speed / before.single_thread_speed


def said(graph: ExecutionGraph, hosts: Hosts, target: Target) -> tuple[str, ...]:
    """What a user must know of it: which hosts were compared, and where that makes no prediction."""
    if hosts is Hosts.model:
        return ()
    traced = traced_cluster(graph, target)
    told = BY_TRACE.format(moved=_moved(traced, target.cluster))
    return (told, SAME) if target.same_hardware and host_ratio(traced, target.cluster) == 1 else (told,)


def _moved(traced: ClusterSpec, asked: ClusterSpec) -> str:
    """From which host to which; no trace names its own."""
    names = [c.host.name if c.host else f"the unnamed host of cluster {c.name!r}" for c in (traced, asked)]
    hosts = f"{names[0]} (assumed: the trace's device is taken to be in {traced.name!r}) to {names[1]}"
    ratio = host_ratio(traced, asked)
    return f"as it is, from {hosts}" if ratio == 1 else f"divided by {ratio:.2f}, from {hosts}"


def _over(found: Prediction, told_us: np.ndarray, reason: str) -> Prediction:
    """Latencies [num_nodes] as they are where they are told; how far they may be off nobody says."""
    tells = np.isfinite(told_us)
    means_us, latency_us = found.mean_latency_us, np.where(tells, told_us, found.latency_us)
    return replace(
        found,
        latency_us=latency_us,
        mean_latency_us=None if means_us is None else np.where(tells, told_us, means_us),
        latency_low_us=np.where(tells, np.nan, found.latency_low_us),
        latency_high_us=np.where(tells, np.nan, found.latency_high_us),
        source=np.where(tells, Source.TRACE, found.source).astype(object),
        reason=np.where(tells, reason, found.reasons),
        uncovered_ops=uncovered_ops(found.graph, latency_us),
        alone=only(found.alone, ~tells),
    )
