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

from gnnperf.analytic import fit_host_overheads
from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.analytic.host_overheads import overhead_us
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict.config import Hosts
from gnnperf.predict.target import Target, choose_target
from gnnperf.prediction import Prediction, Predictor, only, uncovered_ops
from gnnperf.schema import NodeType, Source

REASON = "such host work took so long in this trace"
MOVED = "such host work took {ratio:.2f} times as long in this trace"
SAME = (
    "Host work is told by this trace, which was taken on this hardware: to that part the step time is no independent "
    "prediction."
)


@dataclass(frozen=True)
class TraceHosts:
    """Host nodes by the trace, all others by `base`.

    Attributes:
        overheads: of the trace, by segment and op; of what it lacks, by segment.
        traced: the cluster that the trace is taken to have run on.
        base: who answers for all else.
    """

    overheads: AnalyticConstants
    traced: ClusterSpec
    base: Predictor

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """The base's answer with host nodes of the trace's; what the trace has none of is the base's."""
        found = self.base.predict(graph, cluster)
        nodes, ratio = graph.nodes, host_ratio(self.traced, cluster)
        told_us = np.full(graph.num_nodes, np.nan)  # [num_nodes]
        host = (nodes["node_type"] == NodeType.HOST).to_numpy() & ~(nodes["bytes"].to_numpy() > 0)
        told_us[host] = overhead_us(nodes[host], self.overheads) / ratio
        return _over(found, told_us, REASON if ratio == 1 else MOVED.format(ratio=ratio))


def who_tells(asked: Hosts, target: Target) -> Hosts:
    """Hosts.auto decided: the trace where another GPU is asked about; on CPUs hosts are the devices themselves."""
    if asked is not Hosts.auto:
        return asked
    return Hosts.trace if target.elsewhere and target.cluster.device.kind == "gpu" else Hosts.model


def with_hosts(base: Predictor, graph: ExecutionGraph, hosts: Hosts, target: Target) -> Predictor:
    """The predictor, host work told by the trace if it is to."""
    if hosts is Hosts.model:
        return base
    return trace_hosts([graph], choose_target(graph, None, None).cluster if target.elsewhere else target.cluster, base)


def by_its_hosts(hosts: Hosts, target: Target) -> tuple[str, ...]:
    """What a user must know of it."""
    return (SAME,) if hosts is Hosts.trace and target.same_hardware else ()


def trace_hosts(graphs: Iterable[ExecutionGraph], traced: ClusterSpec, base: Predictor) -> TraceHosts:
    """Overheads of these graphs, all steps together; even one node tells of its op, since steps may be few."""
    nothing = AnalyticConstants()
    return TraceHosts(fit_host_overheads(graphs, nothing, min_samples=1), traced, base)


def host_ratio(traced: ClusterSpec, asked: ClusterSpec) -> float:
    """Single-thread speed of the hosts asked about, relative to the traced ones; of unknown hosts as clusters say."""
    before, after = traced.host, asked.host
    if before is None or after is None or before == after:
        return asked.host_speed / traced.host_speed
    return after.single_thread_speed / before.single_thread_speed


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
        source=np.where(tells, Source.MEASURED, found.source).astype(object),
        reason=np.where(tells, reason, found.reasons),
        uncovered_ops=uncovered_ops(found.graph, latency_us),
        alone=only(found.alone, ~tells),
    )
