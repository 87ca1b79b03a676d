"""Step times of the two-rank toy, by hand: 10 us to the launch, gemm, transfer 50 us, 5 us on the host."""

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction, contended_step_time_us, filled_us, in_place, step_time_us
from gnnperf.graph.prediction import Isolated
from gnnperf.hardware.contention import Contention
from gnnperf.schedule import schedule_with_contention


@pytest.fixture(scope="module")
def step(data: PreparedData) -> Step:
    """A validation step without lags."""
    made = data.steps["val"][0]
    return replace(made, base=replace(made.base, lag_us=np.zeros(len(made.graph.edges))))


def latencies_us(gemm_us: tuple[float, float] = (100.0, 120.0)) -> np.ndarray:
    """[18]: T2, T4, T3, gemm, arrive, exit, T1 of each rank; transfer; devices and link."""
    ranks = [[10.0, 5.0, 10.0, gemm, 0.0, 0.0, 5.0] for gemm in gemm_us]
    return np.array([*ranks[0], *ranks[1], 50.0, 0.0, 0.0, 0.0])


def with_period(step: Step) -> Step:
    (label,) = step.graph.steps
    return replace(step, graph=replace(step.graph, steps=(replace(label, period_us=1.0),)))


def test_a_makespan_where_the_label_is_one(step: Step) -> None:
    assert step_time_us(step, latencies_us()) == pytest.approx(10 + 120 + 50 + 5)
    assert step_time_us(step, latencies_us((130.0, 120.0))) == pytest.approx(10 + 130 + 50 + 5)


def test_a_period_where_the_label_is_one(step: Step) -> None:
    """Hosts wait for the exit, so a period is a makespan; with 100 us more on rank 0's host before, longer by them."""
    assert step_time_us(with_period(step), latencies_us()) == pytest.approx(185)
    longer = latencies_us()
    longer[0] += 100.0
    assert step_time_us(with_period(step), longer) == pytest.approx(110 + 100 + 50 + 5)


def test_a_node_without_latency_takes_its_base(step: Step) -> None:
    known = latencies_us()
    known[10] = np.nan  # the longer gemm
    store = step.data["compute"]
    base_us = float(store.base_us[store.node_id.tolist().index(10)])
    assert base_us > 0
    assert filled_us(step, known)[10] == base_us
    assert step_time_us(step, known) == pytest.approx(10 + max(100.0, base_us) + 50 + 5)
    assert (filled_us(step, np.full(18, np.nan))[15:] == 0).all()  # hardware takes no time


def test_contention_where_nothing_overlaps_changes_nothing(step: Step) -> None:
    """And lags still count."""
    assert contended_step_time_us(step, latencies_us()) == pytest.approx(185)
    estimate = IsolatedPrediction(2 * latencies_us(), latencies_us())
    assert in_place(step, estimate)[0].tolist() == pytest.approx((2 * latencies_us()).tolist())
    lagged = replace(step, base=replace(step.base, lag_us=np.full(len(step.graph.edges), 1.0)))
    assert step_time_us(lagged, latencies_us()) > 185
    assert contended_step_time_us(lagged, latencies_us()) > 185


def contended_latencies(step: Step) -> np.ndarray:
    isolated = step.base.isolated
    assert isolated is not None
    lag_us = np.zeros(len(step.graph.edges))
    return schedule_with_contention(step.graph, latencies_us(), lag_us, isolated).latency_us


def test_the_usual_is_stretched_as_far_as_is_usual(step: Step) -> None:
    """One core. Hosts until 20, launches (T4) until 25 with gemms from 20 on: four at 1/4, gemms then at 1/2.

    0 |= T2 x 2, half speed =| 20 |= T3, T4, gemm of both ranks =| ...   ratio as served, whatever the usual is
    """
    one_core = Isolated(np.ones(18, dtype=bool), Contention(ranks_per_node=2, cores_per_node=1.0))
    shared = replace(step, base=replace(step.base, isolated=one_core))
    usual_us = latencies_us()
    usual_us[3], usual_us[7] = 50.0, np.nan
    result = in_place(shared, IsolatedPrediction(usual_us, latencies_us()))[0]
    served = in_place(shared, IsolatedPrediction(latencies_us(), latencies_us()))[0]
    scheduled = contended_latencies(shared)
    assert scheduled[0] == pytest.approx(20.0)  # T2, next to the other rank's
    assert scheduled[3] > 199.0
    assert result[3] == pytest.approx(50.0 * (scheduled[3] / 100.0) ** (50.0 / 1050.0))  # far less than a turn
    assert served[3] == pytest.approx(100.0 * (scheduled[3] / 100.0) ** (100.0 / 1100.0))
    assert np.isnan(result[7])
    isolated = contended_step_time_us(step, latencies_us())
    assert contended_step_time_us(shared, latencies_us()) > isolated + 100
