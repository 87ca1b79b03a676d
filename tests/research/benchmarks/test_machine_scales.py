"""Shared runs given by the paces of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import read

from gnnperf.gnn.data import machine_scales
from gnnperf.gnn.data.runs import RunStep, typical
from research.benchmarks.machine_scales import errors_of


def twice_as_long(run: RunStep) -> RunStep:
    """The run on a machine that takes twice as long for everything."""
    nodes = run.graph.nodes.assign(latency_us=run.graph.nodes["latency_us"] * 2)
    return replace(run, graph=replace(run.graph, nodes=nodes), step_us=run.step_us * 2)


def test_a_run_is_reported_by_the_others_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_scales, "MIN_NODES", 2)
    first, *others = [(twice_as_long(run), run) for run in map(typical, map(read, "abc"))]
    result = errors_of(first, others)
    assert result is not None
    as_it_took, in_own_scale = result
    np.testing.assert_allclose(as_it_took, [1.0, np.log(2)])
    assert in_own_scale[0] == pytest.approx(0.001)  # the floor of the metric
    assert in_own_scale[1] == pytest.approx(0.0, abs=1e-9)
    assert errors_of(first, []) is None
