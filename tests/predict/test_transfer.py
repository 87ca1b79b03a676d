"""A step on another machine, from measurements of the trace."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import cluster, toy_run

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, Source
from gnnperf.gnn import Checkpoint, SpeedFactors, load_checkpoint, save_checkpoint
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.predict import Mode, Request, predict
from gnnperf.predict.request import TraceEvidence
from gnnperf.predict.transfer import IMPUTED, MOVED, transfer_of
from gnnperf.whatif import Edited
from tests.predict.doubled import doubling

COMPUTE = [3, 10]


@pytest.fixture
def checkpoint() -> Checkpoint:
    """Compute nodes take half as long on the other machine; the network then predicts twice as long for them."""
    return replace(doubling(), speed_factors=SpeedFactors({"compute": np.log(0.5)}))


def steps() -> tuple[ExecutionGraph, ExecutionGraph]:
    """A trace and its step."""
    graph = toy_run(9)
    return graph, graph.step(graph.steps[-1].step)


def test_measurements_are_corrected_by_the_network(checkpoint: Checkpoint) -> None:
    graph, step = steps()
    estimate = transfer_of(checkpoint, graph, step, cluster()).predict(step, cluster())
    measured_us = step.nodes["latency_us"].to_numpy(np.float64)
    assert estimate.latency_us[COMPUTE] == pytest.approx(2 * 0.5 * measured_us[COMPUTE], rel=1e-5)
    assert estimate.latency_us[0] == pytest.approx(measured_us[0], rel=1e-6)
    assert set(estimate.source[COMPUTE]) == {Source.GNN}
    assert set(estimate.reasons[COMPUTE]) == {MOVED}


def test_what_an_edit_changed_starts_from_the_analytical_model_and_the_ratio_of_its_op(checkpoint: Checkpoint) -> None:
    graph, step = steps()
    touched = np.zeros(step.num_nodes, dtype=bool)
    touched[3] = True
    predictor = transfer_of(checkpoint, graph, step, cluster())
    edited = predictor.on_edit(Edited(step, touched, np.arange(step.num_nodes))).predict(step, cluster())
    base_us = AnalyticPredictor(checkpoint.constants).predict(step, cluster()).latency_us
    measured_us = step.nodes["latency_us"].to_numpy(np.float64)
    ratio = 0.5 * measured_us[10] / base_us[10]  # of the other call of the op
    assert edited.latency_us[3] == pytest.approx(2 * base_us[3] * ratio, rel=1e-5)
    assert edited.reasons[3] == IMPUTED


def test_a_checkpoint_without_a_source_machine_is_refused() -> None:
    graph, step = steps()
    with pytest.raises(InputError, match="without a source machine"):
        transfer_of(doubling(), graph, step, cluster())


def test_a_checkpoint_keeps_the_speed_factors(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "file.pt", checkpoint)
    assert load_checkpoint(tmp_path / "file.pt").speed_factors == checkpoint.speed_factors


def test_it_corrects_measurements_only(checkpoint: Checkpoint, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    save_checkpoint(path, checkpoint)
    with pytest.raises(InputError, match="pass it as transfer="):
        predict(Request(trace=trace, checkpoint=path))


def test_the_step_of_another_machine_is_not_compared_with_the_measured_one(
    checkpoint: Checkpoint, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "file.pt"
    save_checkpoint(path, checkpoint)
    estimate = predict(Request(trace=trace, transfer=path))
    assert estimate.measured_step_time_us is None
    assert estimate.traced_step_time_us > 0
    assert any("transfer checkpoint" in note for note in estimate.notes)


@pytest.mark.parametrize(("key", "value", "text"), [
    ("checkpoint", "x.pt", "cannot be combined with checkpoint"),
    ("mode", Mode.analytic, "has no use in mode=analytic"),
    ("evidence", TraceEvidence.none, "starts from the measurements"),
])  # fmt: skip
def test_a_request_that_contradicts_a_transfer_is_refused(trace: Path, key: str, value: object, text: str) -> None:
    request = Request(trace=trace, transfer=trace)
    setattr(request, key, value)
    with pytest.raises(InputError, match=text):
        predict(request)
