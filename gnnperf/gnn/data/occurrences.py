"""The nodes of a recording's last step in every step of the recording, and the kinds that nodes are grouped by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule.alignment import align


@dataclass(frozen=True)
class Occurrences:
    """A recording's last step, and where each of its nodes is in every step.

    Attributes:
        last: the step that lends its structure.
        rows: [num_steps, num_nodes of last] rows of the recording's node table; -1: the step has no such node.
    """

    last: ExecutionGraph
    rows: np.ndarray

    def mean(self, values: np.ndarray) -> np.ndarray:
        """[num_nodes of last] means over the steps of `values` [num_nodes of the recording]; NaN where all are."""
        found = np.where(self.rows >= 0, values[self.rows], np.nan)  # [num_steps, num_nodes]
        known = ~np.isnan(found)
        count = known.sum(axis=0)
        mean = np.where(known, found, 0.0).sum(axis=0) / np.maximum(count, 1)
        return np.where(count > 0, mean, np.nan)

    def of_steps(self, chosen: np.ndarray) -> Occurrences:
        """In the steps where `chosen` [num_steps] bool."""
        return Occurrences(self.last, self.rows[chosen])


def occurrences(graph: ExecutionGraph) -> Occurrences:
    """Align the steps of a recording by content.

    Raises:
        InputError: the graph has no whole step.
    """
    if not graph.steps:
        raise InputError("has no whole step", where=f"graph {graph.name!r}", remedy="record whole steps")
    last = graph.step(graph.steps[-1].step)
    rows = np.full((len(graph.steps), last.num_nodes), -1)  # [num_steps, num_nodes]
    for place, label in enumerate(graph.steps):
        matched = align(last, graph.by_itself(label.step))
        rows[place] = np.where(matched >= 0, graph.rows_of_step(label.step)[matched], -1)
    return Occurrences(last, rows)


def node_kinds(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] node type, for hosts and parts of collectives with their segment: host T1, comm exit, compute."""
    kind = nodes["node_type"].astype("str").fillna("").to_numpy(dtype=object)
    segment = nodes["segment"].astype("str").fillna("").to_numpy(dtype=object)
    split = np.isin(kind, [str(NodeType.HOST), str(NodeType.COMM)])
    return np.where(split, kind + " " + segment, kind)
