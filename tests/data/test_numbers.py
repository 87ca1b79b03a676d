from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster
from toys import two_rank_graph

from gnnperf.data.numbers import (
    DEVICE_FEATURES,
    DIM_FEATURES,
    LINK_FEATURES,
    WORK_FEATURES,
    _dims,
    device_numbers,
    link_numbers,
    work_numbers,
)

HARDWARE = cluster()


def numbers(nodes: pd.DataFrame, analytic_us: float = np.nan) -> pd.DataFrame:
    answer = np.full(len(nodes), analytic_us)
    base = np.nan_to_num(answer, nan=4.0)
    return pd.DataFrame(work_numbers(nodes, answer, base, HARDWARE, 2), columns=list(WORK_FEATURES))


def test_a_gemm_by_hand() -> None:
    nodes = two_rank_graph().nodes
    row = numbers(nodes).iloc[3]
    assert row["log_flops"] == pytest.approx(np.log1p(2 * 512**3))
    assert row["log_bytes"] == pytest.approx(np.log1p(12 * 512**2))
    assert (row["flops_unknown"], row["message_bytes_unknown"], row["dims_unknown"]) == (0, 1, 0)
    assert row["log_num_inputs"] == pytest.approx(np.log1p(2))
    assert row["max_rank"] == 2
    assert row["log_elements"] == pytest.approx(np.log1p(2 * 512**2))
    assert row["log_last_dim"] == pytest.approx(np.log1p(512))
    assert (row["analytic_unknown"], row["log_analytic_us"]) == (1, 0)
    assert row["log_base_us"] == pytest.approx(np.log1p(4.0))


def test_unknown_is_flagged_and_never_nan() -> None:
    table = numbers(two_rank_graph().nodes)
    assert np.isfinite(table.to_numpy()).all()
    host = table.iloc[0]
    assert (host["flops_unknown"], host["bytes_unknown"], host["dims_unknown"], host["group_size_unknown"]) == (1,) * 4


def test_labels_are_no_features() -> None:
    nodes = two_rank_graph().nodes
    other = nodes.assign(start_us=1e9, latency_us=7.0, blocked_us=3.0, event_id=5, event_name="x")
    assert numbers(nodes).equals(numbers(other))


def test_shapes() -> None:
    texts = pd.Series(["[[2,3],[],[4]]", "[[[5,6],[7,8]],[]]", None, "not json", "[]"], dtype="category")
    rows = pd.DataFrame(_dims(texts), columns=[*DIM_FEATURES, "unknown"])
    assert rows["unknown"].tolist() == [0, 0, 1, 1, 0]
    assert np.expm1(rows["log_num_inputs"]).round().tolist() == [2, 2, 0, 0, 0]
    assert np.expm1(rows["log_elements"]).round().tolist() == [10, 86, 0, 0, 0]  # a tensor list is opened
    assert np.expm1(rows["log_first_dim"]).round().tolist() == [2, 7, 0, 0, 0]


@given(st.text(max_size=30))
def test_no_text_in_place_of_shapes_breaks_it(text: str) -> None:
    assert np.isfinite(_dims(pd.Series([text], dtype=object))).all()


def test_hardware_numbers() -> None:
    device = dict(zip(DEVICE_FEATURES, device_numbers(HARDWARE.device), strict=True))
    assert device["log_float32"] == pytest.approx(np.log1p(15e12))
    assert device["log_float16_matrix"] == device["log_float32"]  # not in the catalog
    assert device["is_gpu"] == 1
    link = dict(zip(LINK_FEATURES, link_numbers("inter", HARDWARE.inter), strict=True))
    assert (link["is_intra"], link["is_inter"], link["is_host_link"]) == (0, 1, 0)
    assert link["log_latency_us"] == pytest.approx(np.log1p(2.0))
