"""Tables as tensor trains: the factors, and the chain that a look-up becomes."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.core.schema import Segment
from gnnperf.whatif.tensor_train import CompressTables, ceil_root, train_of
from tests.whatif.programs import FUSED, layer, lookups


def test_factors_by_hand() -> None:
    """1000 = 10 x 10 x 10, 8 = 2 x 2 x 2; cores of 10 x 6, 10 x 18, 10 x 6 values at rank 3."""
    train = train_of((1000, 8), 3)
    assert (train.rows, train.columns) == ((10, 10, 10), (2, 2, 2))
    assert train.cores == ((10, 6), (10, 18), (10, 6))
    assert train.elements == 300


@given(st.integers(1, 10**7), st.integers(1, 512), st.integers(1, 64))
def test_a_train_holds_every_row_and_exactly_the_columns(rows: int, columns: int, rank: int) -> None:
    train = train_of((rows, columns), rank)
    assert prod(train.rows) >= rows
    assert prod(train.columns) == columns
    assert (train.rows[2] - 1) * prod(train.rows[:2]) < rows  # not a row of the last core too many


@given(st.integers(1, 10**9), st.integers(1, 4))
def test_roots(number: int, degree: int) -> None:
    root = ceil_root(number, degree)
    assert root**degree >= number
    assert root == 1 or (root - 1) ** degree < number


def test_a_look_up_by_hand() -> None:
    """40 rows of 2 x 2 x 2: [40,2,3] x [40,3,6], then [40,4,3] x [40,3,2]; 40 rows added to 10 bags."""
    result = CompressTables(rank=3)(lookups(1000))
    nodes = result.graph.nodes
    forward = nodes[(nodes["phase"] == "forward") & nodes["op_name"].notna()]
    assert forward["op_name"].tolist() == [
        "aten::remainder",
        "aten::bmm",
        "aten::bmm",
        "aten::index_add",
        "aten::stack",
    ]
    assert forward["input_dims"].tolist()[1:4] == [
        "[[40,2,3],[40,3,6]]", "[[40,4,3],[40,3,2]]", "[[10,8],[],[40],[40,8]]",
    ]  # fmt: skip
    assert forward["flops"].tolist()[1:3] == [2.0 * 40 * 2 * 3 * 6, 2.0 * 40 * 4 * 3 * 2]
    assert forward["latency_us"].isna().tolist() == [True] * 4 + [False]
    assert forward["flops"].notna().all()
    assert forward["bytes"].notna().all()
    assert "0.032 MB becomes cores of 0.0012 MB: rows 10 x 10 x 10, columns 2 x 2 x 2, rank 3" in result.result[0]


def test_gradients_and_updates_by_hand() -> None:
    """One product again and four of gradients: each product costs twice its forward in backward."""
    nodes = CompressTables(rank=3)(lookups(1000)).graph.nodes
    backward = nodes[(nodes["phase"] == "backward") & nodes["op_name"].notna()]
    products = backward[backward["op_name"] == "aten::bmm"]
    first, second = 2.0 * 40 * 2 * 3 * 6, 2.0 * 40 * 4 * 3 * 2
    assert sorted(products["flops"]) == sorted([first, second, second, first, first])
    added = backward[backward["op_name"] == "aten::index_add"]["input_dims"].tolist()
    assert added == ["[[10,6],[],[40],[40,6]]", "[[10,18],[],[40],[40,18]]", "[[10,6],[],[40],[40,6]]"]
    updates = nodes[(nodes["op_name"] == "aten::add_")]["input_dims"].tolist()
    assert updates == ["[[10,6],[10,6],[]]", "[[10,18],[10,18],[]]", "[[10,6],[10,6],[]]"]
    fused = nodes[nodes["op_name"] == "aten::_fused_sgd_"].iloc[0]
    assert fused["input_dims"] == "[[[10,6],[10,18],[10,6],[7]],[[10,6],[10,18],[10,6],[7]],[]]"
    assert fused["flops"] < lookups(1000).nodes["flops"][FUSED]


def test_every_new_call_pays_the_host() -> None:
    before, after = lookups(1000).nodes, CompressTables(rank=3)(lookups(1000)).graph.nodes
    gaps = [(nodes["segment"] == Segment.T1).sum() for nodes in (before, after)]
    assert gaps == [5, 5 + 3 + 8 + 2]


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"a train of rank 40 has .* values, table .1000, 8. 8000.*smaller rank"):
        CompressTables(rank=40)(lookups(1000))
    with pytest.raises(InputError, match="1 or more"):
        CompressTables(rank=0)
    with pytest.raises(InputError, match="no embedding table of 3 rows"):
        CompressTables(rank=1, of=3)(layer(2, 3, 5, 7))
