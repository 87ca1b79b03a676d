"""A checkpoint as rows of the comparison: what predict.py answers, by the labels of learners."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import prepared

from gnnperf.gnn.data.step_time import step_time_us
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.prediction import Prediction
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.network import PredictorAnswer, fits_of
from tests.predict.doubled import doubling


class Counted:
    """A predictor that counts what it is requested."""

    def __init__(self, predictor: GnnPredictor) -> None:
        self.predictor, self.requested = predictor, 0

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        self.requested += 1
        return self.predictor.predict(graph, cluster)


def test_a_prediction_is_the_predictors_and_requested_for_once(tmp_path: Path) -> None:
    counted = Counted(GnnPredictor(doubling()))
    estimate, (step,) = PredictorAnswer(counted), prepared(tmp_path).steps["test"]
    latency_us, step_us = estimate.latency_us(step), estimate.step_us(step)
    assert counted.requested == 1
    sentences = counted.predictor.predict(step.graph, step.cluster)
    assert np.array_equal(latency_us, sentences.latency_us, equal_nan=True)
    assert step_us == pytest.approx(step_time_us(step, sentences.latency_us))
    estimate.latency_us(replace(step, run="another"))
    assert counted.requested == 2


def test_two_rows_of_a_checkpoint(tmp_path: Path) -> None:
    """The network answers from prepared data what it answers from the graph; the hybrid is what blends."""
    checkpoint, (step,) = doubling(), prepared(tmp_path).steps["test"]
    checkpoint = replace(checkpoint, provenance={"training": {"seed": 4}}, sha256="abc")
    fits = fits_of(checkpoint, checkpoint.network(), "small", 2.0)
    assert [(row, fit.seed, fit.given, fit.fit_s) for row, fit in fits.items()] == [
        ("small", 4, "checkpoint abc", 2.0), ("small-hybrid", 4, "hybrid of checkpoint abc", 2.0),
    ]  # fmt: skip
    network = GnnPredictor(checkpoint)
    for row, predictor in (("small", network), ("small-hybrid", BlendedPredictor(network))):
        sentences = predictor.predict(step.graph, step.cluster).latency_us
        assert fits[row].estimate.latency_us(step)[[3, 10]] == pytest.approx(sentences[[3, 10]], rel=1e-5)  # type: ignore[index]
