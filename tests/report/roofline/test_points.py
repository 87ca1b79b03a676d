"""Points under roofs: two gemms and an addition on round numbers, and the toy's prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from round_device import DEVICE

from gnnperf.report.roofline.points import MEASURED, PREDICTED, pictures_of

CPU = replace(DEVICE, kind="cpu")  # sustained shares of 1: 1e12 FLOP/s, 1e12 bytes/s
OTHER = replace(CPU, name="other", flops_per_s={"float32": 2e12})


def _nodes() -> pd.DataFrame:
    """[5] gemm of 40 us at 100 FLOP/byte, one of 2 us at 0.5; an addition; one without bytes; a host's."""
    unknown = np.nan
    return pd.DataFrame(
        {
            "node_type": ["compute"] * 4 + ["host"],
            "family": ["gemm", "gemm", "elementwise", "gemm", None],
            "dtype": ["float32", None, "float32", "float32", None],
            "flops": [2e7, 1e6, 0.0, 1e6, unknown],
            "bytes": [2e5, 2e6, 4e6, unknown, unknown],
            "latency_us": [40.0, 2.0, 8.0, 1.0, 100.0],
            "measured_latency_us": [50.0, 4.0, unknown, 1.0, 100.0],
        }
    )


def test_a_family_is_a_point_and_its_share_is_reported_node_by_node() -> None:
    (picture,) = pictures_of(_nodes(), CPU, CPU)
    gemm, addition = picture.points[PREDICTED]
    assert (gemm.family, gemm.rate, gemm.num_nodes, gemm.time_us) == ("gemm", "float32", 2, 42.0)
    assert gemm.intensity == pytest.approx(2.1e7 / 2.2e6)
    assert gemm.flops_per_s == pytest.approx(2.1e7 / 42e-6)
    assert gemm.sustained_us == pytest.approx(20.0 + 2.0)  # one by FLOPs, one by bytes
    assert [gemm.share_of_sustained, gemm.share_of_peak] == pytest.approx([22 / 42, 22 / 42])
    assert gemm.bound == "compute"
    assert (addition.intensity, addition.bound) == (0.0, "memory")
    assert addition.bytes_per_s == pytest.approx(5e11)
    assert picture.num_left_out == {MEASURED: 2, PREDICTED: 1}


def test_measured_points_are_of_what_was_measured() -> None:
    (picture,) = pictures_of(_nodes(), CPU, CPU)
    (gemm,) = picture.points[MEASURED]
    assert (gemm.num_nodes, gemm.time_us) == (2, 54.0)


def test_measured_outside_is_a_device_of_its_own() -> None:
    predicted, measured = pictures_of(_nodes(), OTHER, CPU)
    assert (predicted.roofs.device, list(predicted.points)) == (OTHER, [PREDICTED])
    assert (measured.roofs.device, list(measured.points)) == (CPU, [MEASURED])
    assert predicted.points[PREDICTED][0].sustained_us == pytest.approx(10.0 + 2.0)


def test_a_plan_has_predicted_points_only() -> None:
    nodes = _nodes().assign(measured_latency_us=np.nan)
    assert [list(picture.points) for picture in pictures_of(nodes, CPU, CPU)] == [[PREDICTED]]
    assert [list(picture.points) for picture in pictures_of(nodes, CPU, None)] == [[PREDICTED]]
