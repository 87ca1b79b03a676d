"""Measured labels of the joint graph: step times, and the delay along binding edges."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import Relation, Segment
from gnnperf.graph.execution_graph import StepLabel
from gnnperf.graph.rank_graph import RankGraph
from gnnperf.graph.steps import StepWindows


def step_labels(ranks: list[RankGraph], windows: StepWindows, nodes: pd.DataFrame) -> tuple[StepLabel, ...]:
    """Period and makespan of every whole step (definitions: schema.StepTimeKind)."""
    completion = windows.cpu_end_ns / 1000.0  # [num_ranks, num_steps]
    for i, rank in enumerate(ranks):
        step = rank.nodes["step"].to_numpy()[rank.first_node]  # [num_works]
        inside = step >= 0
        np.maximum.at(completion[i], step[inside], rank.works.end_ns[inside] / 1000.0)
    start = windows.begin_ns / 1000.0
    last = completion.max(axis=0)  # [num_steps]
    return tuple(
        StepLabel(
            step=k, name=name, period_us=float(last[k] - last[k - 1]) if windows.continues[k] else None,
            makespan_us=float(last[k] - start[:, k].min()),
            rank_start_us=tuple(start[:, k].tolist()), rank_completion_us=tuple(completion[:, k].tolist()),
        )
        for k, name in enumerate(windows.names)
    )  # fmt: skip


def measured_end_us(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] start + latency; NaN unknown. An exit of unknown latency starts where it ends."""
    unknown_exit = (nodes["segment"] == Segment.EXIT) & nodes["latency_us"].isna()
    return (nodes["start_us"] + nodes["latency_us"].mask(unknown_exit, 0.0)).to_numpy()


def measured_lags(nodes: pd.DataFrame, edges: pd.DataFrame) -> np.ndarray:
    """[num_edges] us from the moment an edge allows its target to the target's start; NaN unless it was binding.

    Among a target's edges that carry a delay class, the one that allows it last is binding.
    """
    start, end = nodes["start_us"].to_numpy(), measured_end_us(nodes)
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    launches = (edges["relation"] == Relation.LAUNCHES).to_numpy()
    moment = np.where(launches, start[src], end[src])  # [num_edges]
    classed = np.flatnonzero(edges["lag_class"].notna().to_numpy() & ~np.isnan(moment))
    order = classed[np.lexsort((moment[classed], dst[classed]))]
    last = np.r_[dst[order[1:]] != dst[order[:-1]], True][-len(order) :] if len(order) else np.zeros(0, bool)
    lag = np.full(len(edges), np.nan)
    lag[order[last]] = (start[dst] - moment)[order[last]]
    return lag
