"""One recording of a run predicts another, by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn.data.recordings import Recording, Repeats
from gnnperf.graph.execution_graph import ExecutionGraph
from research.evaluation import noise_floor
from research.evaluation.op_copies import OpSelector
from research.evaluation.repeats import RepeatOp
from research.evaluation.run_sums import interval_over_groups
from tests.gnn.data.data_sets import recording
from tests.whatif.loops import loop


def scaled(graph: ExecutionGraph, factors: tuple[float, ...]) -> ExecutionGraph:
    """Every latency of step k times factors[k]."""
    factor = np.array(factors)[graph.nodes["step"].clip(lower=0).to_numpy()]
    return replace(graph, nodes=graph.nodes.assign(latency_us=graph.nodes["latency_us"] * factor))


def test_a_typical_step_is_the_mean_over_steps() -> None:
    typical = noise_floor.typical_step(scaled(loop(), (1.0, 2.0)))
    assert np.allclose(typical.latency_us, 1.5 * loop(1).nodes["latency_us"])


def test_a_node_of_one_step_only_keeps_its_own() -> None:
    graph = loop()
    longer = RepeatOp(OpSelector("aten::mm"), 2)(graph).graph
    typical = noise_floor.typical_step(longer)
    assert len(typical.latency_us) == len(loop(1).nodes) + 4
    assert not np.isnan(typical.latency_us).any()


def test_errors_by_hand() -> None:
    """All nodes 10 % longer in the prediction; products measured as they are."""
    measured = noise_floor.typical_step(loop(1))
    predicted = noise_floor.typical_step(scaled(loop(1), (1.1,)))
    result = noise_floor.node_errors(predicted, measured)
    assert result["all"]["gmae"] == pytest.approx(0.1)
    assert result["all"]["median_ape"] == pytest.approx(0.1)
    assert set(result) == {"all", "host T1", "host T5", "compute", "collective"}  # exits of 0 have no relative error
    assert result["compute"]["nodes"] == 6
    assert result["all"]["coverage"] == 1.0


def test_time_weights_favor_long_nodes() -> None:
    """Compute [10, 20, 5, 14, 20, 5] us; the first is off by half, the others by the floor of 0.001."""
    graph = loop(1)
    latency = graph.nodes["latency_us"].to_numpy(copy=True)
    latency[1] *= 1.5
    result = noise_floor.node_errors(
        noise_floor.typical_step(replace(graph, nodes=graph.nodes.assign(latency_us=latency))),
        noise_floor.typical_step(graph),
    )
    compute = result["compute"]
    assert compute["gmae"] == pytest.approx(math.exp((math.log(0.5) + 5 * math.log(0.001)) / 6))
    assert compute["gmae_by_time"] == pytest.approx(math.exp((10 * math.log(0.5) + 64 * math.log(0.001)) / 74))
    assert compute["median_ape"] == 0.0


def test_nodes_without_a_counterpart_count_against_coverage_only() -> None:
    longer = RepeatOp(OpSelector("aten::mm"), 2)(loop(1)).graph
    result = noise_floor.node_errors(noise_floor.typical_step(loop(1)), noise_floor.typical_step(longer))
    assert result["compute"]["coverage"] == pytest.approx(6 / 8)
    assert result["compute"]["median_ape"] == 0.0


def repeats(run: str, *times: float, **about: object) -> Repeats:
    return {k: recording(run, k, us, **about) for k, us in enumerate(times, start=1)}


def test_both_orders_of_every_pair_of_repeats() -> None:
    def load(result: Recording) -> ExecutionGraph:
        return scaled(loop(), (1.0, 1.0) if result.repeat == 1 else (2.0, 2.0))

    steps, nodes = noise_floor.floor_tables({"a": repeats("a", 100.0, 110.0), "lonely": repeats("lonely", 5.0)}, load)
    assert steps[["predicts", "measures"]].to_numpy().tolist() == [[1, 2], [2, 1]]
    assert steps["unprofiled"].tolist() == pytest.approx([math.log(1.1)] * 2)
    every = nodes[nodes["node"] == "all"]
    assert every["median_ape"].tolist() == pytest.approx([0.5, 1.0])
    assert set(steps["machines"]) == {noise_floor.WITHIN}


def test_summary_over_runs_and_groups() -> None:
    recordings = {
        "a": repeats("a", 100.0, 102.0), "b": repeats("b", 100.0, 104.0, link="veth"),
        "c": repeats("c", 100.0, 120.0, world_size=4),
    }  # fmt: skip
    steps, nodes = noise_floor.floor_tables(recordings, lambda _: loop())
    every = records(noise_floor.step_summary(steps), "all", "step unprofiled")
    assert (every["runs"], every["median"], every["max"]) == (3, pytest.approx(math.log(1.04)), math.log(1.2))
    assert every["low"] <= every["median"] <= every["high"]
    assert records(noise_floor.step_summary(steps), "link: veth", "step unprofiled")["median"] == pytest.approx(
        math.log(1.04)
    )
    assert records(noise_floor.step_summary(steps), "world size: 4", "step profiled")["runs"] == 1
    assert records(noise_floor.node_summary(nodes), "compute", "node median_ape")["median"] == 0.0
    assert records(noise_floor.node_summary(nodes), "all", "node gmae")["median"] == pytest.approx(0.001)
    assert records(noise_floor.node_summary(nodes), "compute", "node gmae")["nodes"] == 18


def records(table: pd.DataFrame, group: str, metric: str) -> dict[str, Any]:
    """The one row of a group and metric."""
    (row,) = table[(table["group"] == group) & (table["metric"] == metric)].to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_across_machines_is_another_floor() -> None:
    one, other = recording("a", 1, 100.0, machine="m"), recording("a", 2, 150.0, machine="n")
    steps, _ = noise_floor.floor_tables({"a": {1: one, 2: other}}, lambda _: loop())
    assert set(steps["machines"]) == {noise_floor.ACROSS}
    assert set(noise_floor.step_summary(steps)["machines"]) == {noise_floor.ACROSS}


def test_intervals_draw_groups() -> None:
    values, groups = np.array([1.0, 1.0, 5.0, 5.0]), np.array(["x", "x", "y", "y"])
    assert interval_over_groups(values, groups, lambda v: float(v.mean())) == (1.0, 5.0)
    low, high = interval_over_groups(values, np.zeros(4), lambda v: float(v.mean()))
    assert math.isnan(low)
    assert math.isnan(high)
