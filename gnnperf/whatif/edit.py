"""What an edit is: a graph in, another graph out, and a plain account of what it did.

Edits are values. They never change their input, and `apply` composes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.hardware_change import HardwareChange
from gnnperf.whatif.latency_change import LatencyChange, no_change


@dataclass(frozen=True)
class Edited:
    """An edited graph. Its labels `start_us` are those of the recording; what is scheduled are its latencies.

    Attributes:
        graph: the new graph.
        touched: [num_nodes] bool, nodes that are new, or whose latency or waits the edit has set.
        came_from: [num_nodes] int64, the node of the graph before that it is, or is a copy of.
        unknown: sentences: what the edit cannot know.
        change: what it declares about latencies without knowing them; None: nothing.
        hardware: what it declares about hardware, in order; (): nothing.
        found: sentences: what the edit found and did, for the user to check.
    """

    graph: ExecutionGraph
    touched: np.ndarray
    came_from: np.ndarray
    unknown: tuple[str, ...] = ()
    change: LatencyChange | None = None
    hardware: tuple[HardwareChange, ...] = ()
    found: tuple[str, ...] = ()

    @property
    def latency_change(self) -> LatencyChange:
        """What is declared about latencies, or that nothing is."""
        return no_change(self.graph.num_nodes) if self.change is None else self.change


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
            change=found.latency_change.after(done.latency_change, found.came_from),
            hardware=(*done.hardware, *found.hardware),
            found=(*done.found, *found.found),
        )
    return done


def declared_on(graph: ExecutionGraph, touched: np.ndarray, change: HardwareChange, unknown: tuple[str, ...]) -> Edited:
    """The graph with a change of hardware; recorded latencies of the nodes `touched` [num_nodes] become unknown."""
    edited = replace(graph, nodes=graph.nodes.assign(latency_us=graph.nodes["latency_us"].mask(touched)))
    return Edited(edited, touched, np.arange(graph.num_nodes), unknown, hardware=(change,))


def on_recording(edited: Edited) -> ExecutionGraph:
    """The edited graph with the declared changes of latencies made to the recorded ones."""
    told_us = edited.graph.nodes["latency_us"].to_numpy()
    return replace(edited.graph, nodes=edited.graph.nodes.assign(latency_us=edited.latency_change.of(told_us)))
