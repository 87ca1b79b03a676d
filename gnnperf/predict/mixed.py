"""One prediction of a graph whose nodes run on different hardware: every node as on its own cluster.

               cluster A      cluster B
rank 0         100            80            runs on A      100
rank 1         100            80            runs on B       80
all_reduce      50            60            of both         60, the slower one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnnperf.graph import Alone, ExecutionGraph, Prediction, Predictor, uncovered_ops
from gnnperf.whatif import Asked

SHARED = "What if: what overlapping work takes from other work is told as in cluster {} with {}, on all ranks."

NO_BUCKETS = "What if: token buckets of links are left out, because transfers cross lines with different limits."


def predict_on(graph: ExecutionGraph, predictor: Predictor, asked: Asked) -> Prediction:
    """The predictor's answer for every node on the cluster that is asked; of several, the longest.

    A node that one of them does not cover is not covered. A lag is that of the node it delays.
    """
    answers = [predictor.predict(graph, cluster) for cluster in asked.clusters]
    if len(answers) == 1:
        return answers[0]
    chosen = _slowest(answers, asked)  # [num_nodes]
    latency_us = _picked([each.latency_us for each in answers], chosen)
    alone, warnings = _alone(answers, chosen, asked)
    return replace(
        answers[0],
        latency_us=latency_us,
        mean_latency_us=_picked([each.scheduled_us for each in answers], chosen),
        lag_us=_picked([each.lag_us for each in answers], chosen[graph.edges["dst"].to_numpy()]),
        source=_picked([each.source for each in answers], chosen),
        reason=_picked([each.reasons for each in answers], chosen),
        analytic_latency_us=_picked([each.analytic_latency_us for each in answers], chosen),
        latency_low_us=_picked([each.latency_low_us for each in answers], chosen),
        latency_high_us=_picked([each.latency_high_us for each in answers], chosen),
        uncovered_ops=uncovered_ops(graph, latency_us),
        warnings=tuple(dict.fromkeys((*(w for each in answers for w in each.warnings), *warnings))),
        alone=alone,
    )


def _slowest(answers: Sequence[Prediction], asked: Asked) -> np.ndarray:
    """[num_nodes] place of the cluster with the longest answer among those that a node is asked of."""
    told_us = np.stack([each.latency_us for each in answers])[asked.cluster, asked.node]  # [num_rows]
    order = np.lexsort((np.nan_to_num(told_us, nan=np.inf), asked.node))
    chosen = np.zeros(answers[0].graph.num_nodes, dtype=np.int64)
    chosen[asked.node[order]] = asked.cluster[order]  # the last one of a node stays
    return chosen


def _picked(columns: Sequence[np.ndarray], chosen: np.ndarray) -> np.ndarray:
    """[n] of each place the value in the column that is chosen there."""
    found: np.ndarray = np.stack(columns)[chosen, np.arange(len(chosen))]
    return found


def _alone(answers: Sequence[Prediction], chosen: np.ndarray, asked: Asked) -> tuple[Alone | None, tuple[str, ...]]:
    """Latencies of ops alone; sharing is told by one cluster, that of most nodes."""
    told = [each.alone for each in answers]
    most = int(np.bincount(chosen, minlength=len(answers)).argmax())
    ruling = told[most]
    if ruling is None:
        return None, ()
    silent = np.zeros(len(chosen), dtype=bool)
    nodes = _picked([silent if each is None else each.nodes for each in told], chosen)
    alike = all(each is not None and each.contention == ruling.contention for each in told)
    cluster = asked.clusters[most]
    if any(each is not None and each.contention.outer_bucket != ruling.contention.outer_bucket for each in told):
        # a bucket goes with its line's limit: that of another line would spare these transfers all they take
        ruling = replace(ruling, contention=replace(ruling.contention, outer_bucket=None))
        return replace(ruling, nodes=nodes), (SHARED.format(cluster.name, cluster.device.name), NO_BUCKETS)
    said = () if alike else (SHARED.format(cluster.name, cluster.device.name),)
    return replace(ruling, nodes=nodes), said
