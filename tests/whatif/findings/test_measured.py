"""A ladder of answers on four nodes, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from toys import make_graph

from gnnperf.core.schema import NodeType
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.findings.measured import calibrated_to_trace


def _node(name: str, dims: str, moved: float, latency_us: float) -> dict[str, object]:
    return {"node_type": NodeType.COMPUTE, "thread": 0, "op_name": name, "input_dims": dims, "bytes": moved,
            "latency_us": latency_us}  # fmt: skip


def test_measured_then_calibrated_then_predicted() -> None:
    calls = [("a", "[[4]]", 8.0, 10.0), ("a", "[[4]]", 8.0, 14.0), ("a", "[[8]]", 16.0, 30.0),
             ("b", "[[4]]", 8.0, 5.0), ("c", "[[4]]", 8.0, 7.0)]  # fmt: skip
    recorded = make_graph([_node(*call) for call in calls], [])
    nodes = recorded.nodes.assign(
        op_name=["a", "a", "a", "d", "c"], input_dims=["[[4]]", "[[16]]", "[[8]]", "[[4]]", "[[4]]"],
        bytes=[8.0, 32.0, 16.0, 8.0, 8.0], latency_us=[np.nan, np.nan, 30.0, np.nan, 7.0],
    )  # fmt: skip
    touched = np.array([True, True, True, True, False])
    edited = Edited(replace(recorded, nodes=nodes), touched, np.arange(5))
    before_us = np.array([5.0, 5.0, 10.0, 5.0, 5.0])
    after_us = np.array([5.0, 20.0, 10.0, 4.0, 5.0])
    result = calibrated_to_trace(edited, recorded, before_us, after_us).nodes["latency_us"]
    # a [4]: median(10, 14). a [16]: [8] is a factor of two away in both sizes, [4] of four; ratios 3, and 2 and 2.8.
    near, far = exp(-1.0), exp(-4.0)
    ratio = exp((near * log(3.0) + far * (log(2.0) + log(2.8)) / 2) / (near + far))
    # What is recorded stays; of d nothing knows more than the predictor; c is not touched.
    assert result.tolist() == pytest.approx([12.0, 20.0 * ratio, 30.0, 4.0, 7.0], rel=1e-4)
