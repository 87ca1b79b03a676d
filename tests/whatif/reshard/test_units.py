"""What a placement means for a rank, by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.generate.tables import Placed, Split, Table
from gnnperf.whatif.costs import Cost
from gnnperf.whatif.reshard.edit import Reshape, Sizes
from gnnperf.whatif.reshard.units import Model, index_traffic, row_share, vector_traffic

WHOLE, ROWS, COLUMNS = Table("a", 10, 4, pooling=2), Table("b", 5, 8, pooling=3), Table("c", 6, 6)
MODEL = Model((WHOLE, ROWS, COLUMNS), ranks=2, batch=10)
PLACED = (Placed(Split.TABLE, (1,)), Placed(Split.ROW, (0, 1)), Placed(Split.COLUMN, (0, 1)))


def test_parts_of_both_ranks() -> None:
    first, second = MODEL.parts(PLACED, 0), MODEL.parts(PLACED, 1)
    assert [(p.table, p.rows, p.columns) for p in first] == [(1, 3, 8), (2, 6, 3)]
    assert [(p.table, p.rows, p.columns) for p in second] == [(0, 10, 4), (1, 3, 8), (2, 6, 3)]
    # 20 samples x 3 indices, rows 0, 2 and 4 of 5 are on rank 0
    assert [p.lookups for p in first] == pytest.approx([36.0, 20.0])
    assert [p.lookups for p in second] == pytest.approx([40.0, 24.0, 20.0])


def test_skewed_rows_by_hand() -> None:
    # P(index 0 of 2) = 0.5 ** (1 / 2)
    assert row_share(Table("t", 2, 1, skew=2.0), 2, 0) == pytest.approx(0.5**0.5)


@given(rows=st.integers(1, 300), over=st.integers(1, 5), skew=st.sampled_from((1.0, 2.0, 4.0)))
def test_shares_of_rows_are_all_of_them(rows: int, over: int, skew: float) -> None:
    shares = [row_share(Table("t", rows, 1, skew=skew), over, place) for place in range(over)]
    assert sum(shares) == pytest.approx(1.0)
    assert all(a > b - 1e-9 for a, b in pairwise(shares))  # frequent rows have small numbers


def test_traffic_by_hand() -> None:
    indices, vectors = index_traffic(MODEL, PLACED), vector_traffic(MODEL, PLACED)
    # for rank 0: 10 x (3 + 1), for rank 1: 10 x (2 + 3 + 1)
    np.testing.assert_array_equal(indices.sent, [[40, 60], [40, 60]])
    assert indices.of_rank(0) == 100 and indices.even == 60 * 2  # rank 0 sends 60, rank 1 gets 60
    # columns on rank 0: 8 + 3, on rank 1: 4 + 8 + 3
    np.testing.assert_array_equal(vectors.sent, [[110, 110], [150, 150]])
    assert vectors.even == 150 * 2


@pytest.mark.parametrize(
    ("placement", "statement"),
    [
        (PLACED[:2], "2 places for 3 tables"),
        ((Placed(Split.TABLE, (2,)), *PLACED[1:]), "rank 2"),
        ((Placed(Split.REPLICATED, (0, 1)), *PLACED[1:]), "a replicated table"),
        ((Placed(Split.TABLE, (1,)),) * 3, "rank 0 holds no table"),
    ],
)
def test_placements_that_cannot_be(placement: tuple[Placed, ...], statement: str) -> None:
    with pytest.raises(InputError, match=statement):
        MODEL.check(placement)


def test_columns_are_divided_equally() -> None:
    with pytest.raises(InputError, match="4 columns over 3 ranks"):
        Model((WHOLE,), 3, 10).check((Placed(Split.COLUMN, (0, 1, 2)),))


OLD, NEW = Sizes(rows=100, columns=8, pooling=5, lookups=40), Sizes(rows=30, columns=16, pooling=2, lookups=16)
LOOKS = Reshape(OLD, NEW, samples=8, ranks=2, looks=True)
UPDATES = Reshape(OLD, NEW, samples=8, ranks=2, looks=False)


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("aten::reshape", "[[2,20],[]]", ((2, 8), ())),
        ("aten::remainder", "[[8,5],[]]", ((8, 2), ())),
        ("aten::cumsum", "[[8],[],[]]", ((8,), (), ())),  # samples stay
        ("aten::embedding_bag", "[[100,8],[40],[8]]", ((30, 16), (16,), (8,))),
    ],
)
def test_calls_before_and_of_the_lookup(name: str, dims: str, expected: object) -> None:
    assert LOOKS.arguments(name, dims) == expected


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("[[8,8],[40],[8]]", ((8, 16), (16,), (8,))),  # gradients of vectors, indices, offsets
        ("[[1,40],[40,8]]", ((1, 16), (16, 16))),  # a sparse tensor's indices and values
        ("[[100,8]]", ((30, 16),)),
        ("[[7,3]]", ((7, 3),)),  # of something else
    ],
)
def test_calls_after_the_lookup(dims: str, expected: object) -> None:
    assert UPDATES.arguments("aten::x", dims) == expected


def test_a_sparse_update_costs_what_is_looked_up() -> None:
    dims = "[[100,8],[100,8],[]]"
    new = UPDATES.arguments("aten::add_", dims)
    cost = UPDATES.cost("aten::add_", dims, new, Cost(640.0, 3200.0), "float32")
    assert (cost.flops, cost.bytes) == (640.0 * 16 * 16 / (40 * 8), 3200.0 * 16 * 16 / (40 * 8))


def test_more_lookups_cost_more_though_the_table_is_as_large() -> None:
    same = Reshape(OLD, Sizes(100, 8, 10, 80), samples=8, ranks=2, looks=False)
    dims = "[[100,8],[100,8],[]]"
    assert same.cost("aten::add_", dims, same.arguments("aten::add_", dims), Cost(640.0, 3200.0), None).bytes == 6400.0


def test_what_keeps_its_shapes_keeps_its_cost() -> None:
    dims = "[[7,3]]"
    assert UPDATES.cost("aten::x", dims, ((7, 3),), Cost(1.0, 2.0), None) == Cost(1.0, 2.0)
