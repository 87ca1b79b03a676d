"""What an edit is: a graph in, another graph out, and an account of what it did.

Edits are values. They never change their input, and `apply` composes them. Most edits select nodes (`chosen`), change
columns, edges or declarations of the graph (`rewritten`), and list their assumptions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec

ON_DEVICE = (NodeType.COMPUTE, NodeType.MEMORY)

# latency = (declared_us where declared, else the predictor's or the measured latency) x factor + added_us
#
# A pause is added after every factor: a slower processor does not make a rank wait longer for its data. So the order in
# which pauses and factors are composed does not matter.


@dataclass(frozen=True)
class LatencyChange:
    """What an edit declares about latencies, for a predictor or a recording."""

    factor: np.ndarray  # [num_nodes] of the given latency; 1 none
    added_us: np.ndarray  # [num_nodes] on top of it; 0 none
    declared_us: np.ndarray  # [num_nodes] in place of it; NaN none

    def of(self, predicted_us: np.ndarray) -> np.ndarray:
        """[num_nodes] latencies with the change; an unknown latency stays NaN unless it is declared."""
        return np.where(np.isnan(self.declared_us), predicted_us, self.declared_us) * self.factor + self.added_us

    def after(self, earlier: "LatencyChange", came_from: np.ndarray) -> "LatencyChange":
        """The earlier change, then this one; `came_from` [num_nodes]: node of the graph before that each one is."""
        declared = ~np.isnan(self.declared_us)  # a declaration replaces what was stated before it
        return LatencyChange(
            factor=np.where(declared, 1.0, earlier.factor[came_from]) * self.factor,
            added_us=earlier.added_us[came_from] + self.added_us,
            declared_us=np.where(declared, self.declared_us, earlier.declared_us[came_from]),
        )


def latency_change(
    nodes: np.ndarray, factor: float | np.ndarray = 1.0, added_us: float = 0.0, declared_us: float = np.nan
) -> "LatencyChange":
    """The same change for the nodes `nodes` [num_nodes] bool, none for the others."""
    values = ((factor, 1.0), (added_us, 0.0), (declared_us, np.nan))
    return LatencyChange(*(np.where(nodes, value, none) for value, none in values))


@dataclass(frozen=True)
class HardwareChange:
    """One declared change of hardware: a graph contains work, so the predictor applies it to clusters."""

    on: Callable[[ClusterSpec], ClusterSpec]  # the cluster before -> the cluster after
    # raises an InputError for a cluster, after all changes, that cannot run the edited graph
    check: Callable[[ClusterSpec], None] | None = None


@dataclass(frozen=True)
class Edited:
    """An edited graph. Its labels `start_us` are those of the recording; its latencies are scheduled."""

    graph: ExecutionGraph  # the new graph
    touched: np.ndarray  # [num_nodes] bool, nodes that are new, or whose latency or waits the edit has set
    came_from: np.ndarray  # [num_nodes] int64, the node of the graph before that it is, or is a copy of
    unknown: tuple[str, ...] = ()  # sentences: the assumptions of the edit
    change: "LatencyChange | None" = None  # declared latencies; None: none
    hardware: tuple[HardwareChange, ...] = ()  # declared hardware, in order
    result: tuple[str, ...] = ()  # sentences: what the edit read from the graph and did, for the user to check

    @property
    def latency_change(self) -> "LatencyChange":
        """Declared latencies, or that there are none."""
        return latency_change(np.zeros(self.graph.num_nodes, dtype=bool)) if self.change is None else self.change


class Edit(Protocol):
    """One known change of a program."""

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """The graph with the change.

        Raises:
            InputError: the graph does not have what the edit changes.
        """
        ...


def rewritten(
    graph: ExecutionGraph,
    touched: np.ndarray,
    unknown: tuple[str, ...] = (),
    *,
    predicted: np.ndarray | None = None,
    edges: pd.DataFrame | None = None,
    change: "LatencyChange | None" = None,
    hardware: tuple[HardwareChange, ...] = (),
    result: tuple[str, ...] = (),
    **columns: Any,
) -> Edited:
    """An edit that keeps the nodes of the graph, and gives them other `columns`; arguments as of `Edited`.

    `predicted` [num_nodes] bool: nodes whose recorded latency no longer holds.
    """
    nodes = graph.nodes.assign(**columns)
    if predicted is not None:
        nodes = nodes.assign(latency_us=nodes["latency_us"].mask(predicted))
    edited = replace(graph, nodes=nodes, edges=graph.edges if edges is None else edges)
    return Edited(edited, touched, np.arange(graph.num_nodes), unknown, change, hardware, result)


def unedited(graph: ExecutionGraph) -> Edited:
    """The graph as it is, nothing touched."""
    return Edited(graph, np.zeros(graph.num_nodes, dtype=bool), np.arange(graph.num_nodes))


def apply(graph: ExecutionGraph, edits: Iterable[Edit]) -> Edited:
    """Apply edits one after another; what any of them touched is touched.

    Raises:
        InputError: the graph does not have what one of them changes.
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


def chosen(nodes: pd.DataFrame, *types: NodeType, **equal: object) -> np.ndarray:
    """[num_nodes] bool: nodes of whole steps, of these types (none: any) and with these values (None: any)."""
    fits = nodes["step"].ge(0).to_numpy()
    if types:
        fits = fits & nodes["node_type"].isin([str(one) for one in types]).to_numpy()
    for column, value in equal.items():
        if value is not None:
            fits = fits & (nodes[column] == value).to_numpy()
    return fits


def is_type(graph: ExecutionGraph, *types: NodeType) -> np.ndarray:
    """[num_nodes] bool."""
    return graph.nodes["node_type"].isin([str(one) for one in types]).to_numpy()


def ends(graph: ExecutionGraph, *relations: Relation) -> np.ndarray:
    """[2, n] source and target of the edges of these relations, in the order of the edges."""
    rows = graph.edges["relation"].isin([str(one) for one in relations]).to_numpy()
    return np.stack([graph.edges[end].to_numpy()[rows] for end in ("src", "dst")])


def of_transfers(graph: ExecutionGraph, arrives: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: these parts of collectives (arrive nodes [n]), their exits and their transfers."""
    result = np.zeros(graph.num_nodes, dtype=bool)
    result[arrives] = True
    result[arrives + 1] = True  # a part's exit comes right after it
    part, transfer = ends(graph, Relation.JOINS)
    result[transfer[result[part]]] = True
    return result


def refusal(graph: ExecutionGraph, what: str, allowed: str = "", remedy: str = "") -> InputError:
    """The error of an edit that a graph cannot take."""
    return InputError(what, where=f"graph {graph.name!r}", allowed=allowed, remedy=remedy)
