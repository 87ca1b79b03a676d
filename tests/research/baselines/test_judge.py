import numpy as np
import pytest

from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.judge import fitted_record, repeat_record
from research.baselines.whole_steps import MedianStep
from research.evaluation.records import Origin
from research.evaluation.row_errors import node_figures, step_figures
from tests.research.baselines.made_data import Scaled


def origin(part: str = "test", seed: int | None = 0) -> Origin:
    return Origin("run", part, "scaled", seed, "d", "l", "c")


def test_a_record_by_hand(repeated_data: PreparedData) -> None:
    """Seed 5 adds 5 % to 1.2; the collective, without a prediction, holds the base's; arrivals do not count."""
    record = fitted_record(Scaled(1.2), repeated_data, origin(seed=5))
    assert record.steps["recording"].tolist() == ["f/1", "f/2"]
    assert record.steps["run"].tolist() == ["f", "f"]
    assert record.steps["workload"].tolist() == ["toy", "toy"]
    assert record.steps["predicted_us"].tolist() == pytest.approx([1.25 * 185, 1.25 * 1.2 * 185])
    nodes = record.nodes
    assert nodes is not None
    first = nodes[nodes["recording"] == 0]
    assert first["kind"].tolist() == [*["host T2", "host T4", "host T3", "compute", "host T1"] * 2, "collective"]
    ratio = (first["predicted_us"] / first["measured_us"]).to_numpy()
    assert ratio[:-1] == pytest.approx(1.25)
    step = repeated_data.steps["test"][0]
    assert first["predicted_us"].iloc[-1] == pytest.approx(float(step.data["collective"].base_us[0]))
    assert record.coverage == pytest.approx(10 / 11)
    assert record.fit_s >= 0


def test_the_noise_floor_by_hand(repeated_data: PreparedData) -> None:
    """f/2 is longer by 10 % per node and 20 % per step: errors of 0.1 and 1 - 1 / 1.1, of 0.2 and 1 - 1 / 1.2."""
    record = repeat_record(repeated_data, origin(seed=None))
    assert record.steps["recording"].tolist() == ["f/1 by f/2", "f/2 by f/1"]
    nodes, steps = node_figures([record]), step_figures([record])
    assert nodes is not None
    assert nodes.count == 22
    assert nodes.gmae == pytest.approx(np.sqrt(0.1 * (1 - 1 / 1.1)), rel=1e-4)
    assert steps.gmae == pytest.approx(np.sqrt(0.2 * (1 - 1 / 1.2)))


def test_whole_steps_only(repeated_data: PreparedData) -> None:
    record = fitted_record(MedianStep(), repeated_data, origin())
    assert record.nodes is None
    assert np.isnan(record.coverage)
    assert record.steps["predicted_us"].tolist() == [185.0, 185.0]
