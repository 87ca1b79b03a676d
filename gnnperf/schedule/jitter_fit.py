"""How much ranks differ, given by a recording of several ranks and steps.

x[r, k, j]   latency of node j (the same content and position in every step) of rank r in step k,  T[r, k] = sum over j

What is constant for a rank is its role, what is constant over ranks in a step is the machine's: both are taken out.
What is left of T is what makes one rank of equal ones late:

    var(left of T) = (rank_share T)^2 + moment_us T,    moment_us = variances of nodes / T, less rank_share's part
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule.jitter import ON_DEVICE, Jitter, Spread

LEAST = 2  # ranks, and steps
MOST_SHARE = 0.99


def jitter_of(graph: ExecutionGraph) -> Jitter:
    """What the steps of a recording tell.

    Args:
        graph: a whole window, with measured latencies.

    Raises:
        InputError: it has one rank, or fewer than two whole steps.
    """
    if len(graph.ranks) < LEAST or len(graph.steps) < LEAST:
        raise InputError(
            f"{len(graph.ranks)} ranks and {len(graph.steps)} whole steps do not tell how ranks differ",
            where=f"graph {graph.name!r}, jitter", allowed="a recording of several ranks and several steps",
            remedy="say it: jitter={host:{rank_share:0.02}}",
        )  # fmt: skip
    return Jitter(_spread(graph, (NodeType.HOST,)), _spread(graph, ON_DEVICE))


def _spread(graph: ExecutionGraph, types: tuple[NodeType, ...]) -> Spread:
    nodes = graph.nodes
    steps = [step.step for step in graph.steps]
    chosen = nodes["node_type"].isin([str(t) for t in types]) & nodes["step"].isin(steps) & nodes["latency_us"].notna()
    rows = nodes.loc[chosen, ["rank", "step", "content_key", "latency_us"]]
    rows = rows.assign(position=rows.groupby(["rank", "step", "content_key"]).cumcount())
    table = rows.pivot_table("latency_us", ["rank", "content_key", "position"], "step").dropna()
    if table.empty or table.index.get_level_values("rank").nunique() < LEAST:
        return Spread()
    return _spread_of(table)


def _spread_of(table: pd.DataFrame) -> Spread:
    """`table`: [num_nodes of all ranks, num_steps] us, index rank first."""
    num_steps = table.shape[1]
    total = table.groupby(level="rank").sum().to_numpy()  # [num_ranks, num_steps]
    mean_us = float(total.mean())
    if mean_us <= 0.0:
        return Spread()
    left = total - total.mean(axis=1, keepdims=True) - total.mean(axis=0, keepdims=True) + mean_us
    variance = float((left**2).sum()) / ((total.shape[0] - 1) * (num_steps - 1))
    own = table.to_numpy()
    raw = float(own.var(axis=1, ddof=1).sum()) / float(own.mean(axis=1).sum())  # us
    share = np.sqrt(max(variance - raw * mean_us, 0.0)) / mean_us
    of_nodes = float((own.mean(axis=1) ** 2).sum()) / float(own.mean(axis=1).sum())  # us
    return Spread(min(float(share), MOST_SHARE), max(raw - share**2 * of_nodes, 0.0))
