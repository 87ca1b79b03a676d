"""Figures of the hybrid: error against coverage, reliability of intervals, scores by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure

from gnnperf.gnn import answer_table, fit_node_intervals
from research.benchmarks._hybrid_scores import error_coverage

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST = 6.0  # of scores that a histogram shows; the rest is in the last bin
POINTS = 400  # of a curve


def coverage_figure(scores: pd.DataFrame, log_error: np.ndarray, names: Sequence[str]) -> Figure:
    """Mean |log error| of the network over the share of nodes it answers, by score; the line is a random gate.

    Args:
        scores: [n] rows, columns of `names`.
        log_error: [n] of the network.
        names: scores to draw.
    """
    figure = Figure()
    for name in names:
        share, error = error_coverage(scores[name].to_numpy(), log_error)
        rows = np.unique(np.linspace(len(share) // 50, len(share) - 1, POINTS).astype(int))
        figure.add_scatter(x=share[rows].tolist(), y=error[rows].tolist(), mode="lines", name=name)
    mean = float(log_error.mean())
    figure.add_scatter(x=[0, 1], y=[mean, mean], mode="lines", name="random", line={"dash": "dot"})
    figure.update_xaxes(title="share of nodes answered")
    figure.update_yaxes(title="mean |log(network / measured)|")
    return figure.update_layout(title="Error against coverage", width=760, height=520)


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


def score_figure(scores: pd.Series, family: pd.Series) -> Figure:
    """Histogram of a score per family."""
    figure = Figure()
    shown, names = np.minimum(scores.to_numpy(), MOST), family.fillna("none").astype(str)
    for name in sorted(set(names)):
        figure.add_histogram(x=shown[(names == name).to_numpy()].tolist(), name=name, nbinsx=60, opacity=0.6,
                             histnorm="probability")  # fmt: skip
    figure.update_xaxes(title="score (1: as unlike as nineteen twentieths of validation nodes)")
    figure.update_yaxes(title="share of the family's nodes")
    return figure.update_layout(title="Scores by family", barmode="overlay", width=900, height=560)


def write_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """One HTML file each, which works offline."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.html")
        figure.write_html(paths[-1], include_plotlyjs=True)
    return paths


def _answers(rows: pd.DataFrame, device: str) -> pd.DataFrame:
    columns = (rows[c].to_numpy() for c in ("source", "kind", "family", "hybrid"))
    return answer_table(device, *columns).set_index(rows.index)
