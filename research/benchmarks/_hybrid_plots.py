"""Figure of the hybrid: reliability of its intervals."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from plotly.graph_objects import Figure

from gnnperf.gnn import answer_table, fit_node_intervals

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def reliability_figure(before: pd.DataFrame, judged: Mapping[str, pd.DataFrame], device: str) -> Figure:
    """Share of nodes within their interval over the level that it claims."""
    figure = Figure()
    known = _answers(before, device).assign(run=before["run"], measured_us=before["measured"])
    fitted = [fit_node_intervals(known, level) for level in LEVELS]
    for name, rows in judged.items():
        answers, measured = _answers(rows, device), rows["measured"].to_numpy()
        within = []
        for intervals in fitted:
            low, high = intervals.bounds_us(answers)
            within.append(float(((measured >= low) & (measured <= high)).mean()))
        figure.add_scatter(x=list(LEVELS), y=within, mode="lines+markers", name=name)
    figure.add_scatter(x=[0.5, 1], y=[0.5, 1], mode="lines", name="as claimed", line={"dash": "dot"})
    figure.update_xaxes(title="level claimed")
    figure.update_yaxes(title="share of nodes within")
    return figure.update_layout(title="Reliability of node intervals", width=760, height=520)


def _answers(rows: pd.DataFrame, device: str) -> pd.DataFrame:
    columns = (rows[c].to_numpy() for c in ("source", "kind", "family", "hybrid"))
    return answer_table(device, *columns).set_index(rows.index)
