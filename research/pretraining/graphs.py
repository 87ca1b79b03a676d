"""Rows of op tables -> graphs of isolated compute nodes, so that features and network are those of traces.

    op-table rows of one device, source, method, op         ExecutionGraph
    [linear 64x512 512x512  12 us]                          (compute)--runs_on--.
    [linear 64x512 512x64    5 us]               ->         (compute)--runs_on--(device)
    [linear 1x512  512x512   7 us]                          (compute)--runs_on--'

Each call was timed after a call of the same op, so a graph holds one op, and nodes lie on no stream: there is no order
between them. Labels are what was timed; what the device took is distinguished by `research.pretraining.observation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import EdgeList, ExecutionGraph, add_hardware, lookup, node_table

TOGETHER = ["device", "source", "method", "op"]  # rows of one graph


@dataclass(frozen=True)
class OpGraph:
    """Rows of one device, source, method and op.

    Attributes:
        graph: node i < len(places) is row places[i]; the rest is hardware.
        places: [num_rows] positions of the rows in the table they were taken from.
    """

    graph: ExecutionGraph
    places: np.ndarray


def op_graphs(rows: pd.DataFrame) -> Iterator[OpGraph]:
    """The graphs of a table's rows (tables.COLUMNS), every row in exactly one."""
    for (device, source, _, op), places in grouped(rows, TOGETHER):
        yield OpGraph(op_graph(rows.iloc[places], f"{source} {op} on {device}", device), places)


def op_graph(rows: pd.DataFrame, name: str, device: str) -> ExecutionGraph:
    """One graph of rows that share a device.

    Args:
        rows: [num_rows] of research.tables.
        name: of the graph.
        device: as the table names it.
    """
    families = {op: str(lookup(str(op))[0]) for op in rows["op"].unique()}
    nodes = node_table(
        len(rows), node_type=str(NodeType.COMPUTE), rank=0, step=0, device=0, node_id=np.arange(len(rows)),
        op_name=rows["op"].to_numpy(object), family=rows["op"].map(families).to_numpy(object),
        phase=rows["direction"].to_numpy(object), dtype=rows["dtype"].to_numpy(object),
        input_dims=rows["shapes"].to_numpy(object), flops=rows["flops"].to_numpy(float),
        bytes=rows["moved_bytes"].to_numpy(float), latency_us=rows["latency_us"].to_numpy(float),
    )  # fmt: skip
    isolated = ExecutionGraph(
        name=name, nodes=nodes, edges=EdgeList().table(), steps=(), ranks=(0,), world_size=1, device_names=(device,)
    )
    return add_hardware(isolated).validate()


def grouped(rows: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Values of the columns `by` as text, and the positions [k] of the rows that have them; sorted by values."""
    keys = rows[list(by)].astype(object).reset_index(drop=True)
    for values, part in keys.groupby(list(by), sort=True):
        yield tuple(str(value) for value in values), np.array(part.index)
