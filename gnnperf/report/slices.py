"""What is drawn where: slices of one rank's lanes, predicted or measured.

stream 7   |---- gemm ----|- wait -|--- all_reduce ---|
                          ^ arrive  ^ start of the collective, one slice on every rank that joins it
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph
from gnnperf.predict import StepPrediction

SLICE_COLUMNS = ("node_id", "rank", "lane", "name", "start_us", "end_us")


def predicted_slices(answer: StepPrediction) -> pd.DataFrame:
    """[num_slices] table with SLICE_COLUMNS, from the schedule."""
    return _slices(answer.prediction.graph, answer.schedule.start_us, answer.schedule.end_us)


def measured_slices(answer: StepPrediction) -> pd.DataFrame:
    """[num_slices] table with SLICE_COLUMNS, from the labels of the step the nodes came from; its start is 0.

    A blocking call is drawn as long as it took. Its own time, which starts where its wait ends, is its latency; a wait
    for peers that were not traced has none.
    """
    nodes = answer.prediction.graph.nodes
    start_us = nodes["start_us"].to_numpy() - step_start_us(answer)
    latency_us, wait_us = nodes["latency_us"].to_numpy(), nodes["blocked_us"].fillna(0.0).to_numpy()
    known = ~np.isnan(latency_us)
    begin_us, end_us = start_us - np.where(known, wait_us, 0.0), start_us + np.where(known, latency_us, wait_us)
    return _slices(answer.prediction.graph, begin_us, end_us)


def step_start_us(answer: StepPrediction) -> float:
    """Start of the structure step on the trace's clock; its first event where the labels are of another step."""
    steps = [s for s in answer.prediction.graph.steps if s.step == answer.structure_step]
    if steps and steps[0].rank_start_us:
        return min(steps[0].rank_start_us)
    first = answer.prediction.graph.nodes["start_us"].min()
    return 0.0 if np.isnan(first) else float(first)


def _slices(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    drawn = pd.concat([_own(graph, start_us, end_us), _joined(graph, start_us, end_us)], ignore_index=True)
    known = drawn["start_us"].notna() & drawn["end_us"].notna()
    return drawn[known].sort_values(["rank", "lane", "start_us", "end_us"], kind="stable").reset_index(drop=True)


def _known(start_us: np.ndarray, end_us: np.ndarray) -> np.ndarray:
    return ~(np.isnan(start_us) | np.isnan(end_us))


def _own(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Host segments, kernels and copies; of comm nodes only exits that take time (arrivals are drawn as waits)."""
    nodes = graph.nodes
    kind = nodes["node_type"].astype(str).to_numpy()
    work = np.isin(kind, [NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY])
    exits = (kind == NodeType.COMM) & (nodes["segment"] == Segment.EXIT).to_numpy() & (end_us > start_us)
    drawn = np.flatnonzero((work | exits) & _known(start_us, end_us))
    return _rows(graph, drawn, start_us[drawn], end_us[drawn])


def _joined(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Per rank of a collective: the wait from its arrival on, then the transfer."""
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    joins = joins[_known(start_us, end_us)[joins["dst"].to_numpy()]]
    arrive, collective = joins["src"].to_numpy(), joins["dst"].to_numpy()
    transfer = _rows(graph, arrive, start_us[collective], end_us[collective])
    wait = _rows(graph, arrive, start_us[arrive], start_us[collective])
    wait["name"] = "wait for peers: " + wait["name"]
    return pd.concat([transfer.assign(node_id=collective), wait[wait["end_us"] > wait["start_us"]]], ignore_index=True)


def _rows(graph: ExecutionGraph, node_id: np.ndarray, start_us: np.ndarray, end_us: np.ndarray) -> pd.DataFrame:
    """Slices on the lanes of these nodes; all arguments are [num_slices]."""
    nodes = graph.nodes.iloc[node_id]  # a plan has no measured slices: nothing is written out for them
    return pd.DataFrame(
        {
            "node_id": node_id,
            "rank": nodes["rank"].to_numpy(),
            "lane": _lanes(nodes),
            "name": _names(nodes),
            "start_us": start_us,
            "end_us": end_us,
        }
    )


def _lanes(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] text: the host thread or device stream a node runs on."""
    thread = "thread " + nodes["thread"].astype(str)
    stream = "stream " + nodes["stream"].astype(str)
    lane = np.where(nodes["thread"] >= 0, thread, np.where(nodes["stream"] >= 0, stream, "no lane"))
    return lane.astype(object)


def _names(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] text on a slice: the op, with its segment on the host; a launch call by its own name."""
    op = nodes["op_name"].astype(object)
    event = nodes["event_name"].astype(object)
    segment = nodes["segment"].astype(object)
    name = op.fillna(event).fillna("(unnamed)").astype(str)
    on_host = (nodes["node_type"] == NodeType.HOST).to_numpy()
    calls = on_host & (segment == Segment.T4).to_numpy() & event.notna().to_numpy()
    with_segment = name + " [" + segment.fillna("").astype(str) + "]"
    return np.where(calls, event.astype(str), np.where(on_host & segment.notna(), with_segment, name)).astype(object)
