"""Step times of a window: the recording as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research.evaluation.step_times import step_times_us
from tests.whatif.loops import loop


def test_a_step_takes_63_us_as_drawn() -> None:
    """Rank 1 arrives at 24, the transfer ends at 54, then 3 + 5 + 1."""
    assert step_times_us(loop()) == pytest.approx([63.0, 63.0])


def test_a_rank_begins_when_it_did() -> None:
    graph = loop()
    late = replace(graph.steps[0], rank_start_us=(100.0, 120.0))
    assert step_times_us(replace(graph, steps=(late, *graph.steps[1:]))) == pytest.approx([83.0, 63.0])


def test_work_outside_of_steps_does_not_count() -> None:
    graph = loop(3)
    step = graph.nodes["step"].where(graph.nodes["step"] != 2, -1).astype("int32")
    result = step_times_us(replace(graph, nodes=graph.nodes.assign(step=step), steps=graph.steps[:2]))
    assert result == pytest.approx([63.0, 63.0])


def test_unknown_latencies_take_the_median_of_their_kind() -> None:
    """Gaps 2.5, compute 12.5: arrival at 20, transfer until 50, then 9."""
    graph = loop(1)
    latency = np.where(graph.nodes["op_name"] == "aten::mm", np.nan, graph.nodes["latency_us"])
    assert step_times_us(replace(graph, nodes=graph.nodes.assign(latency_us=latency))) == pytest.approx([59.0])
