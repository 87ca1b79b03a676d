"""How much longer one machine takes, by classes of nodes."""

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn.data.speed_factors import MeasuredTwice, fit_speed_factors


def calls(*ops: str) -> pd.DataFrame:
    """Kernels of one thread."""
    given = {"node_type": "compute", "segment": None, "family": "gemm", "dtype": "float32", "rank": 0, "thread": 0}
    return pd.DataFrame({"op_name": list(ops), "stream": -1, **given})


def test_an_op_has_its_own_factor_and_an_unseen_one_that_of_its_family() -> None:
    """mm takes 1/4, add 1/2 of its time here; between them, an unseen op takes 1/sqrt(8)."""
    nodes = calls("mm", "add", "mm", "add")
    there_us = np.array([10.0, 10.0, 20.0, 20.0])
    here_us = there_us * [0.25, 0.5, 0.25, 0.5]
    factors = fit_speed_factors([MeasuredTwice(nodes, here_us, there_us)] * 20)
    assert factors.moved_us(nodes, there_us) == pytest.approx(here_us, rel=0.02)
    between = factors.moved_us(calls("conv"), np.array([10.0]))
    assert between == pytest.approx([10.0 / np.sqrt(8)], rel=0.1)


def test_effects_are_shrunk_by_their_priors() -> None:
    """One node of 8 us has six classes; 1/prior of them is 1000, 100, 33.3, 33.3 and of its length 100, 33.3: 1300."""
    there_us = np.array([8.0])
    factors = fit_speed_factors([MeasuredTwice(calls("mm"), np.array([4.0]), there_us)])
    half = np.log(0.5)
    assert np.log(factors.moved_us(calls("mm"), there_us) / 8.0) == pytest.approx([half * 1300 / 1301])
    other = calls("mm").assign(op_name="relu", family="elementwise")
    assert np.log(factors.moved_us(other, there_us) / 8.0) == pytest.approx([half * (1000 + 100) / 1301])


def test_what_was_not_measured_is_not_moved() -> None:
    there_us = np.array([8.0, np.nan, 0.0])  # 0 stays 0
    factors = fit_speed_factors([MeasuredTwice(calls("mm", "mm", "mm"), np.array([4.0, 4.0, 4.0]), there_us)])
    assert np.isnan(factors.moved_us(calls("mm", "mm", "mm"), there_us)).tolist() == [False, True, False]
    assert not fit_speed_factors([MeasuredTwice(calls("mm"), np.array([np.nan]), np.array([1.0]))]).effects
