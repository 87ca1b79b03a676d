"""Measured latencies, lags and delays reproduce a step; other steps forecast it; stalls are counted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.schedule import schedule
from gnnperf.schedule.step_measurements import LEAST_NODES, STALL_US, MeasuredStep, forecast_step, measured_step
from tests.toys import several_steps, two_rank_graph

TOY = two_rank_graph()


def _makespan_us(step: MeasuredStep) -> float:
    graph = step.graph
    ready_us = graph.nodes["rank"].map(dict(step.rank_start_us)).fillna(0.0).to_numpy(np.float64)
    lag_us = step.edge_lags_us(graph, np.arange(graph.num_nodes))
    return schedule(graph, np.nan_to_num(step.latency_us), lag_us, ready_us=ready_us).makespan_us


def test_the_schedule_of_a_measured_step_is_the_measured_step() -> None:
    assert _makespan_us(measured_step(TOY, TOY.steps[0])) == pytest.approx(TOY.steps[0].makespan_us, rel=0.01)


def test_a_delay_that_nothing_explains_stays_with_its_node() -> None:
    kernel = int(np.flatnonzero((TOY.nodes["node_type"] == "compute").to_numpy())[-1])
    start_us = TOY.nodes["start_us"].to_numpy(np.float64, copy=True)
    start_us[kernel] += 2 * STALL_US
    edges = TOY.edges.assign(lag_us=TOY.edges["lag_us"].mask((TOY.edges["dst"] == kernel).to_numpy(), 0.0))
    graph = replace(TOY, nodes=TOY.nodes.assign(start_us=start_us), edges=edges)
    before, after = measured_step(replace(TOY, edges=edges), TOY.steps[0]), measured_step(graph, graph.steps[0])
    assert after.delay_us[kernel] == pytest.approx(before.delay_us[kernel] + 2 * STALL_US)
    assert _makespan_us(after) >= _makespan_us(before) + STALL_US
    assert after.stalls_us.sum() == pytest.approx(after.delay_us[kernel])
    assert _makespan_us(after.without_stalls()) <= _makespan_us(before)


def test_edges_keep_their_lags_in_any_order_and_one_that_an_edit_draws_takes_the_median_of_its_class() -> None:
    step = measured_step(TOY, TOY.steps[0])
    edges, nodes = step.graph.edges, np.arange(step.graph.num_nodes)
    drawn = edges.iloc[[0]].assign(src=edges["dst"].iloc[0], dst=edges["src"].iloc[0])
    graph = replace(step.graph, edges=pd.concat([edges.iloc[::-1], drawn], ignore_index=True))
    lags_us = step.edge_lags_us(graph, nodes)
    assert lags_us[:-1].tolist() == step.edge_lags_us(step.graph, nodes)[::-1].tolist()
    usual_us = np.nan_to_num(step.medians.lag_us(graph))[-1]
    assert lags_us[-1] == usual_us + step.delay_us[drawn["dst"].iloc[0]]


def test_a_host_node_far_outside_its_class_is_a_stall() -> None:
    host = np.flatnonzero((TOY.nodes["node_type"] == "host").to_numpy())
    assert len(host) == LEAST_NODES
    one_class = {column: TOY.nodes[column].astype(object) for column in ("segment", "op_name", "event_name")}
    for column in one_class:
        one_class[column].iloc[host] = TOY.nodes[column].iloc[host[0]]
    latency_us = TOY.nodes["latency_us"].to_numpy(np.float64, copy=True)
    latency_us[host[0]] = 50 * STALL_US
    categories = {column: values.astype("category") for column, values in one_class.items()}
    graph = replace(TOY, nodes=TOY.nodes.assign(latency_us=latency_us, **categories))
    step = measured_step(graph, graph.steps[0])
    assert np.flatnonzero(step.stalled).tolist() == [host[0]]
    assert step.stalls_us[host[0]] == 50 * STALL_US
    assert step.without_stalls().latency_us[host[0]] == 7.5  # of 5, 5, 5, 5, 10, 10, 10 and the stall


def test_a_class_of_few_nodes_falls_back_to_a_coarser_one_and_without_any_there_is_no_stall() -> None:
    step = measured_step(TOY, TOY.steps[0])  # no class of the toy has LEAST_NODES
    assert np.isnan(step.usual_us).all()
    assert not step.stalled.any()


def test_without_another_step_there_is_no_forecast() -> None:
    with pytest.raises(InputError, match="evidence=other_steps: the trace has one step only"):
        forecast_step(TOY, TOY.steps[0])


@pytest.mark.parametrize(
    ("target", "source"),
    [(2, 0), (0, 2), (1, 2), (3, 2)],  # of steps of 153, 408 and 128 ms; the fourth has a period of 500 ms
)
def test_a_forecast_does_not_start_from_an_outlier(target: int, source: int) -> None:
    first = replace(TOY.steps[0], makespan_us=153e3)
    periods = {1: 408e3, 2: 128e3} | ({3: 500e3} if target == 3 else {})
    steps = [first, *(replace(first, step=step, period_us=us) for step, us in periods.items())]
    chosen = forecast_step(several_steps(*steps), steps[target])
    assert chosen.from_other_steps and chosen.graph.steps[0].step == source
