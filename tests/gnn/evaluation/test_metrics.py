"""Metrics of errors, and trivial predictors."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import two_rank_graph

from gnnperf.gnn.evaluation.metrics import compare, gmae, gmae_interval, summarize
from gnnperf.gnn.evaluation.trivial import fit_nearest_run, fit_op_medians

NAN = float("nan")


def test_by_hand() -> None:
    result = summarize(np.array([110.0, 50.0, 200.0, NAN, 7.0]), np.array([100.0, 100.0, 100.0, 100.0, NAN]))
    assert result.num_nodes == 3
    assert result.coverage == 0.75
    assert result.gmae == pytest.approx((0.1 * 0.5 * 1.0) ** (1 / 3))
    assert result.mean_ape == pytest.approx(1.6 / 3)
    assert result.median_ape == pytest.approx(0.5)
    assert result.p90_ape == pytest.approx(0.9)
    assert result.max_ape == pytest.approx(1.0)
    assert result.bias == pytest.approx((1.1 * 0.5 * 2.0) ** (1 / 3) - 1)
    assert result.total_bias == pytest.approx(360 / 300 - 1)


def test_the_floor_of_a_tenth_of_a_percent() -> None:
    assert gmae(np.array([1.0, 1.1]), np.array([1.0, 1.0])) == pytest.approx(math.sqrt(0.001 * 0.1))


def test_less_than_a_nanosecond_is_no_measurement() -> None:
    result = summarize(np.array([5.0, 1.1]), np.array([1e-9, 1.0]))
    assert result.num_nodes == 1
    assert result.max_ape == pytest.approx(0.1)


def test_no_nodes_are_nan_not_zero() -> None:
    assert math.isnan(gmae(np.array([]), np.array([])))
    result = summarize(np.array([NAN]), np.array([1.0]))
    assert (result.num_nodes, result.coverage) == (0, 0.0)
    assert math.isnan(result.gmae)
    assert math.isnan(summarize(np.array([1.0]), np.array([NAN])).coverage)


def test_a_prediction_of_zero_is_an_error_of_one_hundred_percent() -> None:
    result = summarize(np.array([0.0]), np.array([5.0]))
    assert result.gmae == 1.0
    assert result.bias == pytest.approx(-0.999)


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=1, max_size=20))
def test_order_of_summaries(pairs: list[tuple[float, float]]) -> None:
    result = summarize(*(np.array(column) for column in zip(*pairs, strict=True)))
    assert result.median_ape <= result.max_ape
    assert result.gmae <= max(result.mean_ape, 0.001) * (1 + 1e-9)  # geometric mean <= mean


def test_intervals_hold_runs_together() -> None:
    predicted = np.array([1.1] * 5 + [1.4] * 5)
    measured, runs = np.ones(10), np.array(["a"] * 5 + ["b"] * 5)
    low, high = gmae_interval(predicted, measured, runs)
    assert [low, high] == pytest.approx([0.1, 0.4])  # the whole of a, or the whole of b
    assert gmae_interval(predicted, measured, runs) == (low, high)
    assert all(math.isnan(v) for v in gmae_interval(predicted[:5], measured[:5], runs[:5]))


def test_predictions_side_by_side() -> None:
    measured = np.array([10.0, 20.0, NAN, 40.0])
    types = np.array(["host", "host", "host", "compute"], dtype=object)
    estimates = {"good": np.array([11.0, 22.0, 1.0, 44.0]), "partly": np.array([20.0, NAN, 1.0, NAN])}
    table = compare(estimates, measured, types, np.array(["a", "a", "a", "b"], dtype=object)).set_index(
        ["node_type", "predictor"]
    )
    assert list(dict.fromkeys(table.index.get_level_values(0))) == ["all", "compute", "host"]
    assert table.loc[("all", "good"), "num_nodes"] == 3
    assert table.loc[("host", "good"), "gmae"] == pytest.approx(0.1)
    assert table.loc[("host", "partly"), "coverage"] == 0.5
    assert table.loc[("compute", "partly"), "num_nodes"] == 0


def nodes(keys: list[int], latencies: list[float], op: str = "aten::mm") -> pd.DataFrame:
    count = len(keys)
    return pd.DataFrame(
        {
            "node_type": ["compute"] * count, "segment": [None] * count, "op_name": [op] * count,
            "content_key": keys, "latency_us": latencies,
        }
    )  # fmt: skip


def test_one_constant_per_op() -> None:
    toy = two_rank_graph().nodes
    estimate = fit_op_medians([toy]).predict(toy)
    assert estimate[[0, 1, 3, 10, 14]].tolist() == [10.0, 5.0, 110.0, 110.0, 50.0]
    assert math.isnan(estimate[4])  # a latency of 0 is no measurement
    assert math.isnan(fit_op_medians([toy]).predict(nodes([1], [1.0], op="aten::new"))[0])


def test_the_run_that_shares_most_work_is_copied() -> None:
    runs = {"near": nodes([1, 2, 3, 1, 2, 3], [10.0, 20.0, 30.0, 12.0, 20.0, 30.0]), "far": nodes([1, 9], [5.0, 6.0])}
    model = fit_nearest_run(runs)
    requested = nodes([1, 3, 7], [0.0, 0.0, 0.0])
    assert model.nearest(requested) == "near"
    assert model.predict(requested).tolist() == [11.0, 30.0, 16.0]  # 7 is unknown there: median of all
    assert model.nearest(nodes([77], [0.0])) == "far"  # a tie goes to the first name
