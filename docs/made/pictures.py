"""The pictures of the concept pages, each drawn from a graph that gnnperf made of a run written as Kineto files.

python -m docs.made.pictures FOLDER     writes them all there, to be looked at without the site
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from docs.made.drawing import Box, Drawing
from docs.made.lanes import BETWEEN, EDGE_LEGEND, NODE_LEGEND, arrows_of, boxes_of, colors_by_type, lanes_of, shown
from docs.made.small_run import SmallRun, small_graph
from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.folding.fold import fold
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec, default_cluster, load_device
from gnnperf.schedule import Schedule, schedule, schedule_with_contention

HARDWARE = "h100_sxm"
KERNELS = "stream 0"


@cache
def _cluster() -> ClusterSpec:
    return default_cluster(load_device(HARDWARE))


def _predicted(graph: ExecutionGraph) -> Prediction:
    return AnalyticPredictor().predict(graph.for_predictors(), _cluster())


def _scheduled(prediction: Prediction) -> Schedule:
    return schedule(prediction.graph, np.nan_to_num(prediction.latency_us), prediction.lag_us)


def _drawn(graph: ExecutionGraph, result: Schedule) -> list[Box]:
    return boxes_of(graph, result.start_us, result.end_us, colors_by_type(graph))


def graph_picture() -> str:
    """Nodes where the trace has them, and the relations that constrain time."""
    graph = small_graph()
    start_us = graph.nodes["start_us"].to_numpy() - np.nanmin(graph.nodes["start_us"])
    boxes = boxes_of(graph, start_us, start_us + graph.nodes["latency_us"].to_numpy(), colors_by_type(graph))
    title = "The execution graph of one step of two ranks: nodes by lane and time, relations as arrows"
    return Drawing(title, lanes_of(graph), tuple(boxes), arrows_of(graph), (NODE_LEGEND, EDGE_LEGEND)).svg()


def schedule_picture() -> str:
    """Where the schedule puts predicted latencies, with critical path and slack."""
    prediction = _predicted(small_graph())
    graph, result = prediction.graph, _scheduled(prediction)
    boxes = tuple(
        replace(box, strong=bool(result.on_critical_path[node]), slack_us=float(result.slack_us[node]))
        for node, box in zip(shown(graph), _drawn(graph, result), strict=True)
    )
    step = f"{result.makespan_us:.0f} us on {HARDWARE}"
    rims = (("#b71c1c", f"red rim: on the critical path; the step takes {step}"), ("#dfe6c8", "strip: slack"))
    return Drawing(f"The step as scheduled: {step}", lanes_of(graph), boxes, (), (NODE_LEGEND, rims)).svg()


def contention_picture() -> str:
    """Two transfers that share a link: each as if it were by itself, then as they share it."""
    prediction = _predicted(small_graph(SmallRun(transfers=2)))
    assert prediction.isolated is not None, "the analytical model predicts isolated ops"
    predicted_us = np.nan_to_num(prediction.latency_us)
    second = schedule_with_contention(prediction.graph, predicted_us, prediction.lag_us, prediction.isolated).schedule
    parts = [
        _pass_boxes(prediction.graph, result, name)
        for name, result in (("1st pass", _scheduled(prediction)), ("2nd pass", second))
    ]
    ends = f"the step takes {_scheduled(prediction).makespan_us:.0f} us, then {second.makespan_us:.0f} us"
    return _stacked("Two transfers on one link, in both passes of the schedule", parts, ends)


def _pass_boxes(graph: ExecutionGraph, result: Schedule, name: str) -> list[Box]:
    """Kernels of rank 0 and the transfers, each transfer in a lane of its own."""
    chosen = [box for box in _drawn(graph, result) if box.lane in (f"rank 0, {KERNELS}", BETWEEN)]
    moves = [box for box in chosen if box.lane == BETWEEN]
    lane = {id(box): f"{name}: transfer {place + 1}" for place, box in enumerate(moves)}
    return [
        replace(
            box, lane=lane.get(id(box), f"{name}: kernels"), label=f"{box.label} {box.end_us - box.start_us:.0f} us"
        )
        for box in chosen
    ]


def folding_picture() -> str:
    """Four ranks, and the one that stands for them: the same schedule."""
    whole = small_graph(SmallRun(num_ranks=4)).for_predictors()
    parts, ends = [], []
    for name, graph in (("whole", whole), ("folded", fold(whole).graph)):
        result = _scheduled(_predicted(graph))
        parts.append(_rank_boxes(graph, result, name))
        ends.append(f"{name}: {len(shown(graph))} nodes, the step takes {result.makespan_us:.0f} us")
    return _stacked("Four equal ranks, and one that stands for four", parts, "; ".join(ends))


def _rank_boxes(graph: ExecutionGraph, result: Schedule, name: str) -> list[Box]:
    """Kernels of every rank, and transfers."""
    stands = {f"rank {rank}, {KERNELS}": f"{name}: rank {rank}" + (f" x {count}" if count > 1 else "")
              for rank, count in graph.multiplicity.items()}  # fmt: skip
    lane = {**stands, BETWEEN: f"{name}: transfer"}
    return [replace(box, lane=lane[box.lane]) for box in _drawn(graph, result) if box.lane in lane]


def _stacked(title: str, parts: list[list[Box]], words: str) -> str:
    """One part below the other, with a gap between."""
    lanes: list[str] = []
    for boxes in parts:
        lanes += [*dict.fromkeys(box.lane for box in boxes), ""]
    return Drawing(title, tuple(lanes[:-1]), tuple(box for part in parts for box in part), (), ((("", words),),)).svg()


PICTURES: dict[str, Callable[[], str]] = {
    "graph": graph_picture,
    "schedule": schedule_picture,
    "contention": contention_picture,
    "folding": folding_picture,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        Path(sys.argv[1], f"{name}.svg").write_text(draw(), encoding="utf-8")
