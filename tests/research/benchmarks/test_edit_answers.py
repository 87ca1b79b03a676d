from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from synthetic import cluster
from toys import two_rank_graph

from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.prediction import Prediction
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.whatif.edit import Edited, latency_change, unedited
from research.benchmarks._edit_answers import change_of, ratios, recorded_change_us

GEMM, LAST = 10, 13  # of the slower rank: 120 us, and its T1
# recorded: 10 + gemm 120 + all-reduce 50 + T1 5 = 185 us


@dataclass(frozen=True)
class ByFlops:
    """60 us per 2 * 512^3 FLOPs, 50 us per transfer, 10 us on hosts."""

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Without contention and lags."""
        nodes = graph.nodes
        given = {"host": 10.0, "collective": 50.0, "comm": 0.0, "device": 0.0, "link": 0.0}
        latency_us = nodes["node_type"].astype(str).map(given).to_numpy(np.float64)
        latency_us = np.where(np.isnan(latency_us), 60.0 * nodes["flops"].to_numpy() / (2 * 512**3), latency_us)
        nothing = np.full(len(nodes), np.nan)
        return Prediction(graph, latency_us, np.zeros(len(graph.edges)), np.full(len(nodes), "analytic", object),
                          latency_us, nothing, nothing, {})  # fmt: skip


def twice_the_work(step: ExecutionGraph) -> Edited:
    """The slower rank's product has twice the FLOPs, and nothing knows how long it takes."""
    chosen = np.arange(step.num_nodes) == GEMM
    nodes = step.nodes.assign(flops=step.nodes["flops"] * np.where(chosen, 2.0, 1.0),
                              latency_us=step.nodes["latency_us"].mask(chosen))  # fmt: skip
    return Edited(replace(step, nodes=nodes), chosen, np.arange(step.num_nodes))


def test_isolated_and_held_to_the_recording() -> None:
    step = two_rank_graph()
    result = change_of(twice_the_work(step), step, ByFlops(), cluster())
    assert (result.before_us, result.after_us) == (10 + 60 + 50 + 10, 10 + 120 + 50 + 10)
    assert result.isolated_us == 60.0
    assert result.held_us == 120.0  # twice what was recorded
    assert result.ratio_us(260.0) == pytest.approx(120.0)


def test_what_is_declared_holds_for_any_latency() -> None:
    step = two_rank_graph()
    pause = replace(unedited(step), change=latency_change(np.arange(step.num_nodes) == LAST, added_us=30.0))
    result = change_of(pause, step, ByFlops(), cluster())
    assert result.isolated_us == 30.0 and result.held_us == 30.0
    assert recorded_change_us(pause, step, np.ones(step.num_nodes)) == 30.0


def test_nothing_changes_without_an_edit() -> None:
    step = two_rank_graph()
    result = change_of(unedited(step), step, ByFlops(), cluster())
    assert result.isolated_us == 0.0 and result.held_us == 0.0


def test_unknown_and_instant_answers_are_no_ratio() -> None:
    before, after = np.array([2.0, 0.0, np.nan, 3.0]), np.array([3.0, 5.0, 1.0, np.nan])
    assert ratios(before, after).tolist() == [1.5, 1.0, 1.0, 1.0]
