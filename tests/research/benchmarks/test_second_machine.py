from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import prepared, read

from gnnperf.gnn.data.runs import typical
from research.benchmarks.second_machine import SameRun, _node_ratios, _step_ratios


def test_the_same_run_of_another_machine_models_for_this_one(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    (step,) = data.steps["test"]
    there = typical(read(step.run))
    as_it_is, scaled = SameRun({step.run: there}), SameRun({step.run: there}, factor=0.5)
    measured_us = step.nodes["latency_us"].to_numpy(np.float64)
    np.testing.assert_allclose(as_it_is.fit(data, 0).latency_us(step), measured_us)
    np.testing.assert_allclose(scaled.fit(data, 0).latency_us(step), 0.5 * measured_us)
    assert scaled.step_us(step) == pytest.approx(0.5 * step.step_us)


def test_ratios_are_this_machine_over_the_other(tmp_path: Path) -> None:
    (step,) = prepared(tmp_path).steps["test"]
    there = typical(read(step.run))
    nodes = there.graph.nodes.assign(latency_us=there.graph.nodes["latency_us"] / 4)
    quick = SameRun({step.run: replace(there, graph=replace(there.graph, nodes=nodes), step_us=there.step_us / 2)})
    assert [ratio for _, ratio in _step_ratios([step], quick)] == [pytest.approx(2.0)]
    ratios = dict(_node_ratios([step], quick))
    assert ratios and all(ratio == pytest.approx(4.0) for ratio in ratios.values())
