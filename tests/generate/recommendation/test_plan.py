"""What no plan can be is refused, naming the key."""

from __future__ import annotations

import re

import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.recommendation.plan import RecommendationPlan, Recommender
from gnnperf.generate.recommendation.read import largest_first
from gnnperf.generate.tables import Placed, Split, Table
from tests.generate.recommendation.plans import TABLES, model, on, over, plan


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
