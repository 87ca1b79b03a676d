"""What no plan can be is refused, naming the key."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.generate import Optimizer, Placed, RecommendationPlan, Split, Table, Travel, part_of, parts_of
from gnnperf.generate.recommendation.lookups import even_bytes, summed_width, vector_bytes, widths
from gnnperf.generate.recommendation.plan import Recommender
from gnnperf.generate.recommendation.read import largest_first, placement_as_written, recommendation_from
from tests.generate.recommendation.plans import TABLES, mixed, model, on, over, plan


@pytest.mark.parametrize(
    ("tables", "settings", "message"),
    [
        ((), {}, "model.tables"),
        ((Table("a", 5, 16), Table("a", 6, 16)), {}, "a name of its own"),
        ((Table("a", 5, 8),), {}, "dim of table 'a'"),
        ((Table("a", 5, 16),), {"top": (24, 2)}, "model.top"),
        ((Table("a", 5, 16),), {"bottom": ()}, "model.bottom"),
        ((Table("a", 5, 16),), {"dtype": "int8"}, "model.dtype"),
    ],
)
def test_models_that_cannot_be(tables: tuple[Table, ...], settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Recommender(tables, **{"bottom": (32, 16), "top": (24, 1), **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        (on(4), "ranks from 0 to 3"),
        (over(Split.COLUMN, 3), "ranks that divide 16 columns"),
        (Placed(Split.COLUMN, tuple(range(4))), None),
        (Placed(Split.REPLICATED, (0, 1)), "all 4 ranks"),
    ],
)
def test_places_of_a_table(placed: Placed, message: str | None) -> None:
    rest = tuple(on(0) for _ in TABLES[1:])
    if message is None:
        assert plan(4, placed, *rest).placement[0] == placed
        return
    with pytest.raises(InputError, match=message) as given:
        plan(4, placed, *rest)
    assert "users" in str(given.value)


def test_ranks_divide_the_batch_and_every_table_has_a_place_and_rows_for_each() -> None:
    with pytest.raises(InputError, match="at most 7 ranks"):
        plan(8, on(0), on(1), on(2), over(Split.ROW, 8))
    with pytest.raises(InputError, match="3 ranks do not divide the batch, 1024"):
        plan(3)
    with pytest.raises(InputError, match="an entry for each of 4 tables"):
        RecommendationPlan("small", model(), 1024, 2, (on(0),))


def test_largest_first_by_hand() -> None:
    """Rows 9, 7, 5, 4: 9 | 7, then 5 to the 7, 4 to the 9."""
    tables = [Table(str(rows), rows, 4) for rows in (5, 9, 4, 7)]
    assert largest_first(tables, 2) == (on(1), on(0), on(0), on(1))


@pytest.mark.parametrize("sizes", [{"rows": 0}, {"dim": -1}, {"pooling": 0.0}, {"skew": 0.0}])
def test_a_table_has_rows_and_columns(sizes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="bad value"):
        Table("t", **{"rows": 10, "dim": 4, **sizes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("split", "ranks"), [(Split.TABLE, (0, 1)), (Split.ROW, ()), (Split.ROW, (1, 0)), (Split.COLUMN, (0, 0))]
)
def test_a_table_is_on_ranks_that_differ(split: Split, ranks: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ranks of a table"):
        Placed(split, ranks)


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
    held = [whole.memory_bytes(optimizer) for optimizer in Optimizer]
    assert held == [1001.0 * 64, 1001.0 * 68, 1001.0 * 128, 1001.0 * 192]
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


RAW: dict[str, Any] = {
    "name": "mine",
    "model": {
        "tables": [{"name": "a", "rows": 100, "dim": 8}, {"name": "b", "count": 2, "rows": 10, "dim": 8, "skew": 2}],
        "bottom": [8],
        "top": [4, 1],
    },
    "batch": 64,
    "ranks": 4,
    "placement": {"a": "row", "b_0": 3, "b_1": {"split": "column", "ranks": [2, 0]}},
}


def test_a_mapping_by_hand() -> None:
    plan = recommendation_from(RAW, "here")
    assert plan.model.tables == (Table("a", 100, 8), Table("b_0", 10, 8, 1.0, 2.0), Table("b_1", 10, 8, 1.0, 2.0))
    assert plan.placement == (over(Split.ROW, 4), on(3), Placed(Split.COLUMN, (0, 2)))
    assert (plan.name, plan.batch, plan.ranks) == ("mine", 64, 4)


def test_a_placement_survives_being_written() -> None:
    plan = recommendation_from(RAW, "here")
    written = placement_as_written(plan.model.tables, plan.placement, 4)
    assert written == {"a": "row", "b_0": 3, "b_1": {"split": "column", "ranks": [0, 2]}}
    assert recommendation_from({**RAW, "placement": written}, "here") == plan


def test_without_a_placement_tables_go_largest_first() -> None:
    plan = recommendation_from({key: value for key, value in RAW.items() if key != "placement"}, "here")
    assert plan.placement == largest_first(plan.model.tables, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 4}, "did you mean 'ranks'?"),
        ({"batch": "many"}, "here.batch: bad value 'many'"),
        ({"batch": True}, "here.batch: bad value True"),
        ({"ranks": 5}, "5 ranks do not divide the batch, 64"),
        ({"placement": {"a": "row"}}, "b_0, b_1 are required"),
        ({"placement": {**RAW["placement"], "c": 1}}, "unknown key 'c'"),
        ({"placement": {**RAW["placement"], "a": "rows"}}, "here.placement.a: bad value 'rows'"),
        ({"placement": {**RAW["placement"], "a": "table"}}, "here.placement.a: bad value 'table'"),
        ({"placement": {**RAW["placement"], "a": 9}}, "ranks from 0 to 3"),
        ({"model": {**RAW["model"], "tables": "a"}}, "here.model.tables: bad value 'a'"),
        ({"model": {**RAW["model"], "tables": [{"name": "a", "rows": 2}]}}, "here.model.tables[0]: dim is required"),
        ({"model": {**RAW["model"], "optimizer": "lamb"}}, "Allowed: sgd, rowwise_adagrad, adagrad, adam"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as given:
        recommendation_from({**RAW, **change}, "here")
    assert message in str(given.value)


def test_model_and_batch_are_required() -> None:
    with pytest.raises(InputError, match="batch is required"):
        recommendation_from({"model": RAW["model"]}, "here")
