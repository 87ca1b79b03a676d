"""Kernels on a GPU without calibration have bounds, and it is stated whose they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.core.schema import Source
from gnnperf.gnn.intervals.devices import DeviceIntervals
from gnnperf.graph.prediction import Prediction
from gnnperf.hardware import load_cluster, load_device
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict.api import UnseenDeviceBounds
from tests.predict.answers import GEMM_0, GEMM_1, Fixed
from tests.toys import two_rank_graph

INTERVALS = DeviceIntervals(0.9, {"gemm": (np.log(0.5), np.log(4.0))}, ("ada", "hopper", "volta"))


def _on(device: str) -> ClusterSpec:
    return replace(load_cluster("dgx_a100"), device=load_device(device))


def _bounded(predictor: Fixed, device: str) -> Prediction:
    cluster = _on(device)
    return UnseenDeviceBounds(INTERVALS)(predictor.predict(two_rank_graph(), cluster), cluster)


def test_kernels_of_a_family_that_generations_tell_of_have_bounds() -> None:
    given = _bounded(Fixed({GEMM_0: 70.0}), "h100_sxm")
    assert given.latency_low_us[GEMM_0] == pytest.approx(35.0)
    assert given.latency_high_us[GEMM_0] == pytest.approx(280.0)
    assert np.isnan(given.latency_low_us[0])  # a host segment
    assert "No prediction was calibrated on h100_sxm" in given.warnings[-1]
    assert "3 GPU generations" in given.warnings[-1]


def test_what_was_measured_or_calibrated_keeps_its_own() -> None:
    answer = Fixed({GEMM_0: 70.0, GEMM_1: 90.0}, source=Source.MEASURED)
    given = _bounded(answer, "h100_sxm")
    assert np.isnan(given.latency_low_us[[GEMM_0, GEMM_1]]).all()
    assert given.warnings == answer.predict(two_rank_graph(), _on("h100_sxm")).warnings


@pytest.mark.parametrize("device", ["mi300x", "cpu_generic"])
def test_other_vendors_and_processors_have_none(device: str) -> None:
    given = _bounded(Fixed(), device)
    assert np.isnan(given.latency_low_us).all()
