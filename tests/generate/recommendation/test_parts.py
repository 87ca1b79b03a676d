"""Parts of tables, their memory, and messages: by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate.recommendation.lookups import even_bytes, summed_width, vector_bytes, widths
from gnnperf.generate.recommendation.plan import Optimizer, Travel, part_of, parts_of
from gnnperf.generate.tables import Placed, Split, Table
from tests.generate.recommendation.plans import mixed, on, over

TABLE = Table("t", 1001, 16, pooling=6.0)


@pytest.mark.parametrize(
    ("placed", "travel", "rows", "dim", "indices", "added_up"),
    [
        (on(3), Travel.POOLED, 1001, 16, 6.0, 1),
        (over(Split.ROW, 4), Travel.SUMMED, 251, 16, 1.5, 1),
        (over(Split.ROW, 2), Travel.POOLED, 501, 16, 3.0, 2),
        (over(Split.COLUMN, 4), Travel.POOLED, 1001, 4, 6.0, 1),
        (over(Split.REPLICATED, 4), Travel.STAYS, 1001, 16, 6.0, 1),
    ],
)
def test_what_a_rank_of_four_holds(
    placed: Placed, travel: Travel, rows: int, dim: int, indices: float, added_up: int
) -> None:
    part = part_of(TABLE, placed, 4)
    assert (part.travel, part.rows, part.dim, part.indices, part.added_up) == (travel, rows, dim, indices, added_up)


def test_lookups_are_of_all_samples_but_where_the_table_is_replicated() -> None:
    assert part_of(TABLE, on(0), 4).lookups(64, 4) == 64 * 6
    assert part_of(TABLE, over(Split.ROW, 4), 4).lookups(64, 4) == 64 * 6 / 4
    assert part_of(TABLE, over(Split.REPLICATED, 4), 4).lookups(64, 4) == 16 * 6


def test_memory_by_optimizer() -> None:
    """1001 rows of 64 bytes; a number per row, a table more, two more; a replicated table has a gradient."""
    whole = part_of(TABLE, on(0), 4)
    result = [
        whole.memory_bytes(o) for o in (Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAGRAD, Optimizer.ADAM)
    ]
    assert result == [1001.0 * 64, 1001.0 * 68, 1001.0 * 128, 1001.0 * 192]
    assert part_of(TABLE, over(Split.REPLICATED, 4), 4).memory_bytes(Optimizer.SGD) == 1001.0 * 128
    assert part_of(TABLE, on(0), 1).memory_bytes(Optimizer.SGD) == 1001.0 * 64


def test_widths_of_every_way_to_hold_a_table() -> None:
    """users by rows over four, items by columns over two, shops by rows over two, days replicated."""
    plan = mixed(4)
    elements, indices, tables = widths(parts_of(plan), 4)
    assert elements.tolist() == [8 + 16, 8 + 16, 0, 0]
    assert indices.tolist() == [0.5 + 10 + 0.5, 0.5 + 10 + 0.5, 0.5, 0.5]
    assert tables.tolist() == [3, 3, 1, 1]
    assert summed_width(parts_of(plan)) == 16


def test_an_even_exchange_has_the_bytes_of_all_samples() -> None:
    """Each of four ranks with 8 columns, 16 samples: 4 x 16 x 8 x 4 bytes leave it, its own quarter included."""
    assert even_bytes(np.full(4, 8.0), 16, 4).tolist() == [4 * 16 * 8 * 4.0] * 4


def test_the_busiest_of_an_uneven_exchange() -> None:
    """Rank 0 has all 8 columns: it sends to three; others receive 16 x 8 x 4 bytes, as of an even one 4/3 of that."""
    result = even_bytes(np.array([8.0, 0.0, 0.0, 0.0]), 16, 4)
    assert result == pytest.approx([4 * 16 * 8 * 4.0] + [16 * 8 * 4.0 * 4 / 3] * 3)


@given(st.lists(st.integers(0, 64), min_size=2, max_size=9), st.integers(1, 100))
def test_no_exchange_is_shorter_than_the_even_one(columns: list[int], samples: int) -> None:
    width = np.array(columns, float)
    even = even_bytes(np.full(len(width), width.mean()), samples, 4).max()
    assert even_bytes(width, samples, 4).max() >= even * (1 - 1e-12)


def test_one_rank_sends_nothing() -> None:
    assert vector_bytes(parts_of(mixed(4)), 4, 256)[2:].min() > 0  # they receive
    assert even_bytes(np.array([8.0]), 16, 4).tolist() == [0.0]
