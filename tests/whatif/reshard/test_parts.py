"""What a placement means for a rank, by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.generate.tables import Placed, Split, Table
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
