"""Figures of a trained network's answers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure, Scattergl

AROUND = 0.1  # drawn beside the diagonal: 10 % too long, 10 % too short


def parity(nodes: pd.DataFrame, title: str) -> Figure:
    """Predicted against measured latency, both axes logarithmic, a color per node type.

    Args:
        nodes: rows of tables.sampled.
        title: what is shown.
    """
    figure = Figure()
    ends = _ends(nodes)
    for factor, dash in ((1.0, "solid"), (1.0 + AROUND, "dot"), (1.0 - AROUND, "dot")):
        line = {"color": "gray", "width": 1, "dash": dash}
        figure.add_scatter(x=ends, y=factor * ends, mode="lines", line=line, showlegend=False, hoverinfo="skip")
    for node_type, rows in nodes.groupby("node_type", sort=True):
        figure.add_trace(_points(str(node_type), rows))
    figure.update_xaxes(title="measured (us)", type="log")
    figure.update_yaxes(title="predicted (us)", type="log")
    return figure.update_layout(title=title, width=760, height=700, legend_title="node type")


def _points(node_type: str, rows: pd.DataFrame) -> Scattergl:
    said = (rows["op_name"].fillna("").astype(str) + "<br>" + rows["run"].astype(str)).tolist()
    marker = {"size": 4, "opacity": 0.5}
    x, y = rows["measured_us"].tolist(), rows["predicted_us"].tolist()
    return Scattergl(x=x, y=y, mode="markers", name=node_type, text=said, marker=marker)


def _ends(nodes: pd.DataFrame) -> np.ndarray:
    """[2] shortest and longest latency of both axes, us; without nodes 1 and 10."""
    values = nodes[["measured_us", "predicted_us"]].to_numpy(np.float64)  # [n, 2]
    return np.array([values.min(), values.max()]) if len(values) else np.array([1.0, 10.0])
