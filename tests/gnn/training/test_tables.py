"""Errors by group and samples of answers, on numbers computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from synthetic import prepared

from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.look import errors_by, node_answers, sampled

NODES = pd.DataFrame(
    {
        "family": ["gemm", "gemm", "copy"],
        "node_type": ["compute", "compute", "memory"],
        "measured_us": [100.0, 200.0, 700.0],
        "predicted_us": [110.0, 240.0, 700.0],  # 10 % and 20 % too long, right
        "base_us": [150.0, 100.0, 1400.0],  # 50 % too long, 50 % too short, twice as long
    }
)


def test_errors_by_group_longest_time_first() -> None:
    table = errors_by(NODES, "family", "node_type")
    assert table["family"].tolist() == ["copy", "gemm"]
    copy, gemm = table.to_dict("records")
    assert copy["gmae"] == pytest.approx(0.001)  # the floor of the metric
    assert copy["base_gmae"] == pytest.approx(1.0)
    assert (gemm["nodes"], gemm["time_share"]) == (2, pytest.approx(0.3))
    assert gemm["gmae"] == pytest.approx(math.sqrt(0.1 * 0.2))
    assert gemm["base_gmae"] == pytest.approx(0.5)
    assert gemm["median_ape"] == pytest.approx(0.15)
    assert gemm["bias"] == pytest.approx(math.sqrt(1.1 * 1.2) - 1)
    assert gemm["total_bias"] == pytest.approx(350 / 300 - 1)


def test_a_sample_is_bounded_and_the_same_every_time() -> None:
    many = pd.concat([NODES] * 100, ignore_index=True).assign(place=range(300))
    sample = sampled(many, max_rows=40)
    assert len(sample) == 40
    assert sample["place"].is_monotonic_increasing and sample["place"].is_unique
    pd.testing.assert_frame_equal(sample, sampled(many, max_rows=40))
    assert sample["place"].tolist() != sampled(many, max_rows=40, seed=1)["place"].tolist()


def test_a_small_table_is_taken_whole_with_errors() -> None:
    sample = sampled(NODES)
    assert sample["log_error"].tolist() == pytest.approx([math.log(1.1), math.log(1.2), 0.0])


def test_answers_of_measured_nodes_only(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    nodes = node_answers(TypedGNN(ModelConfig(hidden_channels=8), data.vocabulary), data.steps["val"])
    assert len(nodes) == 11  # 8 host, 2 products, 1 transfer; arrivals and exits take no time
    assert nodes["predicted_us"].tolist() == pytest.approx(nodes["base_us"].tolist())  # untrained
    measured = data.steps["val"][0].nodes["latency_us"].to_numpy()[nodes["node_id"].to_numpy()]
    assert nodes["measured_us"].tolist() == pytest.approx(measured.tolist())
