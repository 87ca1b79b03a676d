from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic import prepared

from gnnperf.core.schema import NodeType
from gnnperf.gnn.data.step_time import filled_us
from research.baselines.trivial import Base
from research.benchmarks._public_machine_scales import OwnScale


def test_its_nodes_take_as_long_in_all_as_measured(tmp_path: Path) -> None:
    step = prepared(tmp_path).steps["test"][0]
    host = (step.nodes["node_type"] == "host").to_numpy()
    measured_us = step.nodes["latency_us"].to_numpy(np.float64)
    base_us, result_us = filled_us(step, np.full(len(host), np.nan)), OwnScale(((NodeType.HOST,),)).isolated_us(step)
    known = host & (measured_us > 0) & (base_us > 0)
    assert known.any()
    assert result_us[known].sum() == pytest.approx(measured_us[known].sum())
    assert np.ptp(result_us[known] / base_us[known]) == pytest.approx(0.0)
    assert np.array_equal(result_us[~host], base_us[~host])
    assert OwnScale(()).step_us(step) == Base().step_us(step)
