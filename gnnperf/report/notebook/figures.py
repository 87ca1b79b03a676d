"""Figures of an answer, by plotly."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, InputError, require
from gnnperf.predict import StepPrediction, critical_chain
from gnnperf.report.compare.changes import BY, UNNAMED
from gnnperf.report.summary import nodes_table
from gnnperf.report.text import headline, time_text
from gnnperf.report.timeline import MEASURED, PREDICTED, tracks

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_SLICES = 4000  # a browser draws more of them slowly: the longest are drawn
NUM_PARTS = 15
COLOR_OF = {PREDICTED: "#3b6fb6", MEASURED: "#999999"}
ROW_PIXELS, FRAME_PIXELS = 22, 160


def timeline(answer: StepPrediction, ranks: Sequence[int] | None = None) -> Figure:
    """Slices of each lane, predicted and measured."""
    known = answer.prediction.graph.ranks
    require(ranks is None or set(ranks) <= set(known), "ranks of a timeline", ranks, ", ".join(map(str, known)))
    slices = tracks(answer)
    slices = slices if ranks is None else slices[slices["rank"].isin(list(ranks))]
    drawn, title = _longest(slices.assign(us=(slices["end_ns"] - slices["start_ns"]) / 1000.0))
    lanes = list(dict.fromkeys(_lanes(slices)))
    go = _plotly()
    bars = [
        _bars(part.assign(lane=_lanes(part), begin_us=part["start_ns"] / 1000.0), kind, COLOR_OF[kind])
        for kind, part in ((kind, drawn[drawn["kind"] == kind]) for kind in (PREDICTED, MEASURED))
        if len(part)
    ]
    return _over_time(go.Figure(bars), f"{headline(answer)}{title}", lanes)


def critical_path(answer: StepPrediction) -> Figure:
    """The nodes of the critical path, each for as long as it holds the step back; lanes by node type."""
    chain = critical_chain(answer.prediction.graph, answer.schedule)
    begin_us = np.append(answer.schedule.start_us[chain], answer.schedule.makespan_us)  # [num_on_path + 1]
    nodes = nodes_table(answer).iloc[chain]
    ranks = nodes["rank"].to_numpy()
    lane = np.where(ranks >= 0, nodes["node_type"].astype(str) + ", rank " + nodes["rank"].astype(str), "collective")
    names = nodes["op_name"].astype(object).fillna(UNNAMED).astype(str).to_numpy()
    parts = pd.DataFrame({"lane": lane, "name": names, "begin_us": begin_us[:-1], "us": np.diff(begin_us),
                          "source": nodes["source"].to_numpy()})  # fmt: skip
    drawn, title = _longest(parts[parts["us"] > 0])
    go = _plotly()
    bars = [_bars(part, str(source), None) for source, part in drawn.groupby("source", sort=False)]
    return _over_time(go.Figure(bars), f"critical path of the {headline(answer)}{title}", sorted(set(drawn["lane"])))


def breakdown(answer: StepPrediction, by: str = "node type") -> Figure:
    """Parts of the step: on the critical path (they add up to it), and summed over all ranks."""
    require(by in BY, "by of a breakdown", by, ", ".join(BY))
    nodes = nodes_table(answer)
    nodes = nodes[nodes["node_type"].isin([str(kind) for kind in WORK_TYPES])]
    names = nodes[BY[by]].astype(object).fillna(UNNAMED).astype(str)
    columns = {"on the critical path": "critical_us", "predicted, all ranks": "latency_us",
               "measured, all ranks": "measured_latency_us"}  # fmt: skip
    sums = nodes[list(columns.values())].groupby(names.to_numpy()).sum(min_count=1)
    sums = sums.sort_values("critical_us", ascending=False, kind="stable").head(NUM_PARTS)
    go = _plotly()
    bars = [
        go.Bar(name=label, x=[escape(str(name)) for name in sums.index], y=sums[column] / 1000.0,
               text=[time_text(float(us)) for us in sums[column]])
        for label, column in columns.items()
        if sums[column].notna().any()
    ]  # fmt: skip
    figure = go.Figure(bars)
    return figure.update_yaxes(title="ms").update_layout(title=f"{escape(headline(answer))}, by {by}", barmode="group")


def _plotly() -> Any:
    try:
        return importlib.import_module("plotly.graph_objects")
    except ImportError as error:
        raise InputError(
            "plotly is not installed", where="figures", remedy="pip install 'gnnperf[notebook]'"
        ) from error


def _lanes(slices: pd.DataFrame) -> list[str]:
    return [f"rank {rank}, {track}" for rank, track in zip(slices["rank"], slices["track"], strict=True)]


def _longest(parts: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The longest, in their order; and words about what is left out."""
    if len(parts) <= MOST_SLICES:
        return parts, ""
    return parts.loc[parts["us"].nlargest(MOST_SLICES).index.sort_values()], f" (the {MOST_SLICES:,} longest slices)"


def _bars(parts: pd.DataFrame, name: str, color: str | None) -> Any:
    """One bar per part [n]: lane, name, begin_us, us."""
    words = [f"{escape(str(op))}: {time_text(float(us))}" for op, us in zip(parts["name"], parts["us"], strict=True)]
    return _plotly().Bar(
        name=escape(name), orientation="h", y=parts["lane"], base=parts["begin_us"] / 1000.0, x=parts["us"] / 1000.0,
        hovertext=words, hoverinfo="text", marker_color=color,
    )  # fmt: skip


def _over_time(figure: Figure, title: str, lanes: Sequence[str]) -> Figure:
    figure.update_yaxes(categoryorder="array", categoryarray=list(lanes)[::-1], type="category")
    figure.update_xaxes(title="ms since the step began")
    height = FRAME_PIXELS + ROW_PIXELS * max(len(lanes), 4)
    return figure.update_layout(title=escape(title), barmode="overlay", height=height, showlegend=True)
