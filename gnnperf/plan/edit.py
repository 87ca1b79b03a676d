"""What an edit is: a graph in, another graph out, and a plain account of what it did.

Edits are values. They never change their input, and `apply` composes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnnperf.graph.execution_graph import ExecutionGraph


@dataclass(frozen=True)
class Edited:
    """An edited graph. Its labels `start_us` are those of the recording; what is scheduled are its latencies.

    Attributes:
        graph: the new graph.
        touched: [num_nodes] bool, nodes that are new, or whose latency or waits the edit has set.
        came_from: [num_nodes] int64, the node of the graph before that it is, or is a copy of.
        unknown: sentences: what the edit cannot know.
    """

    graph: ExecutionGraph
    touched: np.ndarray
    came_from: np.ndarray
    unknown: tuple[str, ...] = ()


class Edit(Protocol):
    """One known change of a program."""

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """The graph with the change.

        Raises:
            InputError: the graph has no place for it.
        """
        ...


def unedited(graph: ExecutionGraph) -> Edited:
    """The graph as it is, nothing touched."""
    return Edited(graph, np.zeros(graph.num_nodes, dtype=bool), np.arange(graph.num_nodes))


def apply(graph: ExecutionGraph, edits: Iterable[Edit]) -> Edited:
    """Apply edits one after another; what any of them touched is touched.

    Raises:
        InputError: the graph has no place for one of them.
    """
    done = unedited(graph)
    for edit in edits:
        found = edit(done.graph)
        done = Edited(
            graph=found.graph,
            touched=found.touched | done.touched[found.came_from],
            came_from=done.came_from[found.came_from],
            unknown=(*done.unknown, *found.unknown),
        )
    return done
