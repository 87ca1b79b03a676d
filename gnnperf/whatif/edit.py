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

# What an edit declares about latencies, for whoever tells latencies: a predictor, or the recording itself.
#
# latency = (declared_us where declared, else given) x factor + added_us
#
# A pause is added after every factor: a slower processor does not make a rank wait longer for its data. So the order in
# which pauses and factors are composed does not matter.


@dataclass(frozen=True)
class LatencyChange:
    """Per node; nothing is changed where the factor is 1, nothing added and nothing declared.

    Attributes:
        factor: [num_nodes] of what is given.
        added_us: [num_nodes] on top of it, 0 none.
        declared_us: [num_nodes] in place of what is given; NaN none.
    """

    factor: np.ndarray
    added_us: np.ndarray
    declared_us: np.ndarray

    def of(self, predicted_us: np.ndarray) -> np.ndarray:
        """[num_nodes] latencies with the change; a node that nothing tells stays NaN unless it is declared."""
        return np.where(np.isnan(self.declared_us), predicted_us, self.declared_us) * self.factor + self.added_us

    def after(self, earlier: LatencyChange, came_from: np.ndarray) -> LatencyChange:
        """The earlier change, then this one; `came_from` [num_nodes]: node of the graph before that each one is."""
        declared = ~np.isnan(self.declared_us)  # a declaration replaces what was stated before it
        return LatencyChange(
            factor=np.where(declared, 1.0, earlier.factor[came_from]) * self.factor,
            added_us=earlier.added_us[came_from] + self.added_us,
            declared_us=np.where(declared, self.declared_us, earlier.declared_us[came_from]),
        )


def no_change(num_nodes: int) -> LatencyChange:
    """Latencies as they are given."""
    return LatencyChange(np.ones(num_nodes), np.zeros(num_nodes), np.full(num_nodes, np.nan))


def scaled(chosen: np.ndarray, factor: float) -> LatencyChange:
    """`factor` for the nodes `chosen` [num_nodes] bool."""
    nothing = no_change(len(chosen))
    return LatencyChange(np.where(chosen, factor, 1.0), nothing.added_us, nothing.declared_us)


def delayed(chosen: np.ndarray, added_us: float) -> LatencyChange:
    """`added_us` more for the nodes `chosen` [num_nodes] bool."""
    nothing = no_change(len(chosen))
    return LatencyChange(nothing.factor, np.where(chosen, added_us, 0.0), nothing.declared_us)


def declared(chosen: np.ndarray, latency_us: float) -> LatencyChange:
    """`latency_us` for the nodes `chosen` [num_nodes] bool, whatever is given."""
    nothing = no_change(len(chosen))
    return LatencyChange(nothing.factor, nothing.added_us, np.where(chosen, latency_us, np.nan))


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
        result: sentences: what the edit found and did, for the user to check.
    """

    graph: ExecutionGraph
    touched: np.ndarray
    came_from: np.ndarray
    unknown: tuple[str, ...] = ()
    change: LatencyChange | None = None
    hardware: tuple[HardwareChange, ...] = ()
    result: tuple[str, ...] = ()

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
        result = edit(done.graph)
        done = Edited(
            graph=result.graph,
            touched=result.touched | done.touched[result.came_from],
            came_from=done.came_from[result.came_from],
            unknown=(*done.unknown, *result.unknown),
            change=result.latency_change.after(done.latency_change, result.came_from),
            hardware=(*done.hardware, *result.hardware),
            result=(*done.result, *result.result),
        )
    return done


def declared_on(graph: ExecutionGraph, touched: np.ndarray, change: HardwareChange, unknown: tuple[str, ...]) -> Edited:
    """The graph with a change of hardware; recorded latencies of the nodes `touched` [num_nodes] become unknown."""
    edited = replace(graph, nodes=graph.nodes.assign(latency_us=graph.nodes["latency_us"].mask(touched)))
    return Edited(edited, touched, np.arange(graph.num_nodes), unknown, hardware=(change,))


def on_recording(edited: Edited) -> ExecutionGraph:
    """The edited graph with the declared changes of latencies made to the recorded ones."""
    predicted_us = edited.graph.nodes["latency_us"].to_numpy()
    return replace(edited.graph, nodes=edited.graph.nodes.assign(latency_us=edited.latency_change.of(predicted_us)))
