"""Waits for the last rank: order statistics by hand, folded as whole, never shorter, longer with more ranks."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.core.schema import Relation
from gnnperf.generate.folding.fold import fold
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from gnnperf.schedule.jitter import Jitter, Spread, arrival_lags_us, jitter_of
from gnnperf.schedule.jitter_pass import expected_maximum
from gnnperf.whatif.world_size import WorldSize
from tests.generate.folding.graphs import Item, Meeting, Work, grid, latencies_us
from tests.whatif.loops import loop

STEADY = Jitter(device=Spread(rank_share=0.1))
BOTH = Jitter(Spread(0.05, 1.0), Spread(0.02, 3.0))
items = st.builds(Work, st.integers(1, 20).map(float)) | st.builds(
    Meeting, st.sampled_from(["row", "column", "all"]), st.integers(1, 9).map(float), st.booleans()
)


def expected_excess(count: int) -> float:
    """E max of `count` standard normal draws."""
    result: float = expected_maximum(np.zeros(1), np.ones(1), np.array([float(count)]))[0]
    return result


def _period_us(graph: ExecutionGraph, jitter: Jitter | None) -> float:
    latency_us, lag_us = latencies_us(graph), np.zeros(len(graph.edges))
    if jitter is not None:
        lag_us = lag_us + arrival_lags_us(graph, latency_us, lag_us, jitter, repeats=True)
    result = schedule(graph, latency_us, lag_us, num_unrolled=2).period_us
    assert result is not None
    return result


def _waits_us(graph: ExecutionGraph, jitter: Jitter) -> list[float]:
    """Of each transfer, by rows of the edges of its first part."""
    waits = arrival_lags_us(graph, latencies_us(graph), np.zeros(len(graph.edges)), jitter)
    joins = (graph.edges["relation"] == Relation.JOINS).to_numpy()
    by_transfer = pd.Series(waits[joins]).groupby(graph.edges["dst"].to_numpy()[joins])
    assert (by_transfer.max() == by_transfer.min()).all()  # all ranks wait for the same one
    return by_transfer.first().tolist()


@pytest.mark.parametrize(("count", "excess"), [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi)),
                                               (8, 1.42360), (1000, 3.24144)])  # fmt: skip
def test_tabulated_maxima_of_normal_draws(count: int, excess: float) -> None:
    """Harter 1961, "Expected values of normal order statistics"."""
    assert expected_excess(count) == pytest.approx(excess, abs=2e-4)


@given(st.integers(2, 100_000))
def test_blom_is_near(count: int) -> None:
    blom = NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
    assert expected_excess(count) == pytest.approx(blom, rel=0.05)
    assert expected_excess(2 * count) > expected_excess(count)


def test_the_variance_of_the_larger_of_two() -> None:
    _, variance = expected_maximum(np.array([5.0]), np.array([2.0]), np.array([2.0]))
    assert variance == pytest.approx(4.0 * (1 - 1 / math.pi), rel=1e-3)


@given(means=st.lists(st.floats(-50, 50), min_size=1, max_size=4), deviation=st.floats(0, 20))
def test_a_maximum_is_never_before_the_latest_median(means: list[float], deviation: float) -> None:
    mean = np.array(means)
    result, _ = expected_maximum(mean, np.full(len(mean), deviation), np.ones(len(mean)))
    assert mean.max() <= result <= mean.max() + deviation * expected_excess(len(mean)) + 1e-6 * (1 + deviation)


def test_a_group_waits_for_its_slowest_rank() -> None:
    """100 us of work before a sum over four: 10 us of deviation that a rank keeps, sqrt(100 x 4) = 20 us by moments."""
    graph = grid(1, 4, [Work(100.0), Meeting("all", 3.0)])
    assert _waits_us(graph, STEADY) == pytest.approx([10 * expected_excess(4)], rel=1e-4)
    assert _waits_us(graph, Jitter(device=Spread(moment_us=4.0))) == pytest.approx([20 * expected_excess(4)], rel=1e-4)
    both = Jitter(device=Spread(0.1, 4.0))
    assert _waits_us(graph, both) == pytest.approx([math.hypot(10, 20) * expected_excess(4)], rel=1e-4)


def test_ranks_that_have_just_met_do_not_wait_and_those_of_other_groups_do() -> None:
    """Rows meet, then columns of two: what rows differ by is now the deviation of the larger of two draws."""
    graph = grid(2, 2, [Work(100.0), Meeting("row", 3.0), Work(0.0), Meeting("row", 3.0), Meeting("column", 3.0)])
    waits = _waits_us(graph, STEADY)
    first, last = 10 * expected_excess(2), 10 * math.sqrt(1 - 1 / math.pi) * expected_excess(2)
    assert sorted(waits) == pytest.approx([0, 0, last, last, first, first], rel=1e-3, abs=1e-9)


@given(rows=st.integers(1, 2), columns=st.integers(2, 4), program=st.lists(items, min_size=1, max_size=6))
def test_folded_waits_as_whole_and_neither_is_shorter_than_without(
    rows: int, columns: int, program: list[Item]
) -> None:  # fmt: skip
    whole = grid(rows, columns, [Work(7.0), *program])
    folded = fold(whole).graph
    assert len(folded.ranks) == 1
    assert _period_us(folded, BOTH) == pytest.approx(_period_us(whole, BOTH), rel=1e-6)
    assert _period_us(folded, BOTH) >= _period_us(folded, None) * (1 - 1e-12)  # sums in another order
    assert _period_us(folded, Jitter()) == _period_us(folded, None)


def test_more_ranks_wait_longer() -> None:
    graph = grid(1, 8, [Work(100.0), Meeting("all", 3.0), Work(1.0)])
    result = [_period_us(WorldSize(ranks, data_parallel=8)(graph).graph, STEADY) for ranks in (8, 64, 1024, 16_384)]
    excess = [expected_excess(ranks) for ranks in (8, 64, 1024, 16_384)]
    assert np.diff(result) == pytest.approx(10.1 * np.diff(excess), rel=0.01)


def test_what_is_no_deviation_is_refused() -> None:
    with pytest.raises(InputError, match="rank_share of jitter"):
        Spread(rank_share=1.5)
    with pytest.raises(InputError, match="moment_us of jitter"):
        Spread(moment_us=-1.0)


def test_a_recording_of_one_step_does_not_tell() -> None:
    with pytest.raises(InputError, match="2 ranks and 1 whole steps"):
        jitter_of(loop(1))


def test_a_recording_reports_what_was_put_in() -> None:
    """40 steps; every op of a rank takes longer by its own share of the step, and by noise of its own."""
    graph, draw = loop(40), np.random.default_rng(7)
    nodes = graph.nodes
    slower = 1 + 0.05 * draw.standard_normal((2, 40))
    device = (nodes["node_type"] == "compute").to_numpy()
    rank, step = nodes["rank"].to_numpy(), nodes["step"].to_numpy()
    latency_us = nodes["latency_us"].to_numpy(copy=True)
    latency_us[device] *= slower[rank[device], step[device]]
    result = jitter_of(ExecutionGraph(**{**graph.__dict__, "nodes": nodes.assign(latency_us=latency_us)}))
    assert result.device.rank_share == pytest.approx(0.05, rel=0.35)  # 39 degrees of freedom: 11 % of deviation
    assert result.host == Spread()
    noisy = np.where(device, nodes["latency_us"] + draw.normal(0.0, 1.0, len(nodes)), nodes["latency_us"])
    result = jitter_of(ExecutionGraph(**{**graph.__dict__, "nodes": nodes.assign(latency_us=noisy)}))
    assert result.device.moment_us == pytest.approx(2 * 3 / (35.0 + 39.0), rel=0.3)  # three kernels per rank of 1 us^2
    assert result.device.rank_share < 0.03
