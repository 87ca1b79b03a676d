"""Measured latencies and lags; and medians per class of nodes and edges, fitted on other steps or other ranks."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Segment, schema
from gnnperf.graph import ExecutionGraph, combined, measurement_classes

_EDGE_CLASSES = (
    ["lag_class", "source_type", "target_type", "target_event"],
    ["lag_class", "target_type"],
    ["lag_class"],
)


@dataclass(frozen=True)
class ClassMedians:
    """Medians per class, finest class first."""

    nodes: tuple[pd.Series, ...]  # one table (class -> median latency_us) per level of graph.CLASS_LEVELS
    edges: tuple[pd.Series, ...]  # one table (class -> median lag_us) per level of _EDGE_CLASSES

    def latency_us(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] median latency of each node's class; NaN where no class was seen."""
        value = np.full(graph.num_nodes, np.nan)
        for table, of_node in zip(self.nodes, measurement_classes(graph.nodes), strict=False):
            value = np.where(np.isnan(value), table.reindex(of_node).to_numpy(), value)
        return value

    def lag_us(self, graph: ExecutionGraph, edges: np.ndarray | None = None) -> np.ndarray:
        """[num_edges] median lag of each edge's class; 0 where nothing delays the edge, NaN where no class was seen.

        `edges`: rows of the edges to look up; None: all.
        """
        rows = np.arange(len(graph.edges)) if edges is None else edges
        keys, lag = _edge_keys(graph, rows), np.full(len(rows), np.nan)
        for columns, table in zip(_EDGE_CLASSES, self.edges, strict=False):
            missing = np.flatnonzero(np.isnan(lag))
            if len(missing) and len(table):
                codes = combined([schema.codes_of(keys[name])[missing] for name in columns])
                _, first, of_edge = np.unique(codes, return_index=True, return_inverse=True)
                classes = keys[columns].iloc[missing[first]].itertuples(index=False, name=None)
                medians = dict(zip(table.index.to_frame().itertuples(index=False, name=None), table, strict=True))
                lag[missing] = np.array([medians.get(one, np.nan) for one in classes])[of_edge]
        return np.where(graph.edges["lag_class"].isna().to_numpy()[rows], 0.0, lag)


def fit_medians(graph: ExecutionGraph, fit_node: np.ndarray) -> ClassMedians:
    """Medians over the nodes where `fit_node` [num_nodes] bool, and over the edges that end in them."""
    latency_us = graph.nodes["latency_us"].where(fit_node).to_numpy()
    known = ~np.isnan(latency_us)
    nodes = [pd.Series(latency_us[known]).groupby(of_node[known]).median()
             for of_node in measurement_classes(graph.nodes)]  # fmt: skip
    lag, rows = graph.edges["lag_us"].to_numpy(), np.flatnonzero(fit_node[graph.edges["dst"].to_numpy()])
    edges = _edge_keys(graph, rows).assign(value=lag[rows])
    by = (edges.dropna(subset="value").groupby(names, observed=True, dropna=False) for names in _EDGE_CLASSES)
    return ClassMedians(tuple(nodes), tuple(group["value"].median() for group in by))


def measured_latency_us(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] as measured; NaN unknown. A wait for untraced peers holds their transfer: it lasts `blocked_us`."""
    nodes = graph.nodes
    peer = (nodes["segment"] == Segment.PEER_WAIT).to_numpy()
    return np.where(peer, nodes["blocked_us"], nodes["latency_us"]).astype(np.float64)


def in_peer_wait(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: transfers and exits that are in the measured sum of a wait for untraced peers."""
    nodes = graph.nodes
    part = (nodes["node_type"] == NodeType.COLLECTIVE) | (nodes["segment"] == Segment.EXIT)
    return (part & nodes["latency_us"].isna()).to_numpy()


def _edge_keys(graph: ExecutionGraph, rows: np.ndarray) -> pd.DataFrame:
    nodes, edges = graph.nodes, graph.edges
    src, dst = edges["src"].to_numpy()[rows], edges["dst"].to_numpy()[rows]
    of = {"lag_class": (edges["lag_class"], rows), "source_type": (nodes["node_type"], src),
          "target_type": (nodes["node_type"], dst), "target_event": (nodes["event_name"], dst)}  # fmt: skip
    return pd.DataFrame({name: _named(column, at) for name, (column, at) in of.items()})


def _named(column: pd.Series, rows: np.ndarray) -> "pd.Categorical[str]":
    """[len(rows)] with "" for what is missing; without a text per row, of which there are millions."""
    given = column.astype("category").cat
    names = [str(name) for name in given.categories if name != ""]
    of_code = np.array([names.index(name) if name in names else len(names) for name in given.categories] + [len(names)])
    codes: np.ndarray = of_code[given.codes.to_numpy()[rows]]
    return pd.Categorical.from_codes(codes, pd.Index([*names, ""]))


def measured_latencies(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """([num_nodes] latencies, [num_edges] lags): as measured where known, class medians elsewhere, else NaN.

    The wait for untraced peers and their transfer count as one, with their measured sum.
    """
    medians = fit_medians(graph, np.ones(graph.num_nodes, dtype=bool))
    latency = measured_latency_us(graph)
    latency = np.where(np.isnan(latency) & ~in_peer_wait(graph), medians.latency_us(graph), latency)
    lag = graph.edges["lag_us"].to_numpy()
    parts = in_peer_wait(graph) | graph.nodes["node_type"].isin([NodeType.DEVICE, NodeType.LINK]).to_numpy()
    return np.where(np.isnan(latency) & parts, 0.0, latency), np.where(np.isnan(lag), medians.lag_us(graph), lag)
