"""Host overheads of one reference host, from runs on hosts of unknown speed.

    log(mean us of an op in a run) = overhead of the op + effect of the run

Steps add up means, which lie above geometric ones: overheads are multiplied by measured over predicted sums of runs.
(`gnnperf.analytic.fit_host_overheads` pools the nodes of runs of one machine, whose effect stays in them.)

A run's effect is the speed of its host on that day, which differs by a factor of two between machines of one name. Runs
that were measured together are a campaign, and the reference is the mean of campaigns: many runs of one machine do not
make it the usual one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticConstants
from gnnperf.analytic.host_fit import labeled_hosts, robust_mean
from gnnperf.graph import ExecutionGraph

MIN_NODES = 30  # of an op in all runs; one with fewer backs off to its segment
FULL_NODES = 30  # of an op in a run, from which on its mean counts in full
PRIOR_RUNS = 1.0  # that the mean of the segment counts as: an op of a single run is often of that run's own kind
LEAST_US = 0.05  # the first rank to leave a collective has an exit of 0
ROUNDS = 12  # of overheads and effects in turn


@dataclass(frozen=True)
class HostRun:
    """Robust means of the host nodes of one run."""

    campaign: str  # the measurements that it belongs to
    ops: pd.DataFrame  # segment, key (op or runtime call), us, num_nodes
    segments: pd.Series  # us by segment


def host_run(campaign: str, graph: ExecutionGraph) -> HostRun:
    """The means of a graph's steps: outside of them the profiler starts and stops.

    Latencies are of the reference host as far as the host is known.
    """
    hosts = labeled_hosts(graph.nodes[graph.nodes["step"] >= 0])
    means = hosts.groupby(["segment", "key"])["latency_us"].agg(us=_mean_us, num_nodes="size").reset_index()
    return HostRun(campaign, means, hosts.groupby("segment")["latency_us"].agg(_mean_us))


def fit_host_runs(runs: Sequence[HostRun], base: AnalyticConstants) -> tuple[AnalyticConstants, pd.Series]:
    """`base` with the host overheads of the runs that have hosts, and how much longer each campaign takes than all."""
    runs = [run for run in runs if len(run.ops)]
    means = pd.concat([run.ops.assign(run=number) for number, run in enumerate(runs)], ignore_index=True)
    op = means.groupby(["segment", "key"]).ngroup().to_numpy()  # [num_means]
    names = means[["segment", "key"]].assign(op=op).drop_duplicates().set_index("op").sort_index()  # [num_ops]
    run, num_nodes = means["run"].to_numpy(), means["num_nodes"].to_numpy()  # [num_means] each
    log_us, weight = np.log(means["us"].to_numpy()), np.minimum(num_nodes, FULL_NODES) / FULL_NODES
    segment, _ = pd.factorize(names["segment"])  # [num_ops]
    runs_of_op = np.bincount(op, weight)  # [num_ops]
    runs_of_segment = np.bincount(segment, runs_of_op)
    effect = np.zeros(len(runs))
    for _ in range(ROUNDS):
        total = np.bincount(op, weight * (log_us - effect[run]))  # [num_ops]
        usual = (np.bincount(segment, total) / runs_of_segment)[segment]
        overhead = (total + PRIOR_RUNS * usual) / (runs_of_op + PRIOR_RUNS)
        for number in range(len(runs)):
            own = run == number
            rest, roots = (log_us - overhead[op])[own], np.sqrt(num_nodes[own])
            effect[number] = np.quantile(rest, 0.5, weights=roots, method="inverted_cdf")
        effect -= effect.mean()
    fitted_us = num_nodes * np.exp(overhead[op] + effect[run])
    sums = np.bincount(run, num_nodes * means["us"]) / np.bincount(run, fitted_us)  # [num_runs] measured / fitted
    of_campaigns = pd.DataFrame({"effect": effect, "sums": sums}).groupby([one.campaign for one in runs])
    levels = of_campaigns["effect"].mean()
    reference = levels.mean() + math.log(of_campaigns["sums"].median().mean())
    often = np.bincount(op, num_nodes) >= MIN_NODES
    by_op = zip(names["segment"][often], names["key"][often], np.exp(overhead[often] + reference), strict=True)
    segments = pd.concat([np.log(one.segments) - effect[number] for number, one in enumerate(runs)])
    by_segment = np.exp(segments.groupby(level=0).mean() + reference)
    fitted = replace(
        base,
        host_overhead_us={(str(name), str(key)): float(us) for name, key, us in by_op},
        segment_us={**base.segment_us, **{str(name): float(us) for name, us in by_segment.items()}},
    )
    return fitted, np.exp(levels - levels.mean())


def _mean_us(values: pd.Series) -> float:
    return max(robust_mean(values.to_numpy()), LEAST_US)
