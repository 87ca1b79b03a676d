"""A plan from a mapping and back; what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.recommendation.read import largest_first, placement_as_written, recommendation_from
from gnnperf.generate.tables import Placed, Split, Table
from tests.generate.recommendation.plans import on, over

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
