"""prediction.json and nodes.parquet of the toy graph."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from gnnperf.core.documents import to_json
from gnnperf.core.schema import PREDICTION_COLUMNS
from gnnperf.hardware import load_device
from gnnperf.hardware.yaml_spec import device_from
from gnnperf.report.json_document import document
from gnnperf.report.summary import nodes_table
from tests.predict.answers import GEMM_1, toy_answer

GOLDEN = """\
{
  "format": "gnnperf.prediction",
  "format_version": 1,
  "run": "toy",
  "mode": "analytic",
  "hardware": "v100_sxm2_32gb",
  "cluster": "one_node",
  "traced_hardware": "Tesla V100-SXM2-32GB",
  "hardware_numbers": null,
  "traced_hardware_numbers": null,
  "world_size": 2,
  "traced_ranks": [
    0,
    1
  ],
  "step": 0,
  "step_name": "ProfilerStep#0",
  "structure_step": 0,
  "step_time_us": 370.0,
  "step_time_kind": "makespan",
  "step_time_is_lower_bound": false,
  "step_time_interval_us": [
    300.0,
    400.0
  ],
  "interval_level": 0.9,
  "measured_step_time_us": 185.0,
  "step_time_error": 1.0,
  "traced_step_time_us": 185.0,
  "traced_step_prediction_us": null,
  "step_time_ratio": null,
  "measured_rank_start_skew_us": 0.0,
  "step_makespan_us": 370.0,
  "rank_step_time_us": {
    "0": 370.0,
    "1": 370.0
  },
  "num_nodes": {
    "host": 8,
    "compute": 2,
    "memory": 0,
    "comm": 4,
    "collective": 1,
    "device": 2,
    "link": 1
  },
  "num_nodes_by_source": {
    "analytic": 15
  },
  "num_nodes_by_reason": {
    "analytic": {
      "no network was asked": 15
    }
  },
  "source_share": {
    "analytic": 1.0
  },
  "critical_path_share": {
    "compute": 0.8243243243243243,
    "collective": 0.13513513513513514,
    "host": 0.04054054054054054,
    "comm": 0.0
  },
  "critical_path_delay_us": 0.0,
  "uncovered_ops": {},
  "uncovered_measured_share": 0.0,
  "peak_memory": null,
  "findings": null,
  "whatif": null,
  "warnings": [
    "the sun shines"
  ],
  "provenance": {
    "gnnperf": "0",
    "input_sha256": {
      "toy": "00"
    }
  }
}
"""


def test_golden_document() -> None:
    """gemm of rank 1: 305 us, so 10 + 305 + 50 + 5 = 370 us, twice the measured step."""
    answer = replace(toy_answer({GEMM_1: 305.0}), step_time_interval_us=(300.0, 400.0), interval_level=0.9,
                     warnings=("the sun shines",))  # fmt: skip
    assert to_json(document(answer)).decode() == GOLDEN


def test_numbers_of_the_hardware_are_those_of_its_file_and_nothing_in_words() -> None:
    device = replace(load_device("h100_sxm"), source="a secret", provenance={"host": "mine"})
    result = document(toy_answer(device=device, traced_device=load_device("v100_sxm2_32gb")))
    assert result["hardware_numbers"]["flops_per_s"]["bfloat16_matrix"] == 989.4e12
    assert result["hardware_numbers"]["memory_bandwidth_bytes_per_s"] == device.memory_bandwidth_bytes_per_s
    assert result["traced_hardware_numbers"]["flops_per_s"]["float32"] == 15.7e12
    assert not {"source", "host", "provenance"} & set(result["hardware_numbers"])
    assert device_from(json.loads(to_json(result))["hardware_numbers"], "here") == replace(
        device, source="", provenance={}
    )


def test_without_an_interval_it_is_null() -> None:
    result = document(toy_answer())
    assert result["step_time_interval_us"] is None and result["interval_level"] is None


def test_unknown_is_null_in_strict_json() -> None:
    text = to_json({"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": None}})
    assert json.loads(text) == {"a": None, "b": [None, 1.0], "c": {"d": None}}


def test_nodes_have_the_vocabulary_and_keep_holes() -> None:
    nodes = nodes_table(toy_answer({GEMM_1: np.nan}))
    assert list(nodes.columns) == [c.name for c in PREDICTION_COLUMNS]
    assert [str(t) for t in nodes.dtypes] == [c.dtype for c in PREDICTION_COLUMNS]
    gemm = nodes.loc[GEMM_1]
    assert np.isnan(gemm["latency_us"])
    assert gemm["source"] == "uncovered"
    assert gemm["measured_latency_us"] == 120.0
    assert gemm["start_us"] == 10.0
    assert nodes["segment"].isna().sum() == 2 + 1 + 3  # kernels, the collective, hardware
    assert nodes.loc[0, "segment"] == "T2"
