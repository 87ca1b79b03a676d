"""predict() of a recommendation model that never ran."""

from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.recommendation import RecommendationPlan
from gnnperf.hardware import load_device
from gnnperf.predict.api import predict
from gnnperf.predict.request import Mode, Request

RAW: dict[str, Any] = {
    "name": "mine",
    "model": {"tables": [{"name": "t", "count": 4, "rows": 1000, "dim": 8}], "bottom": [8], "top": [4, 1]},
    "batch": 64,
    "ranks": 2,
}


def test_a_mapping_with_tables_is_a_recommender() -> None:
    plan = Request(plan=RAW).plan_spec()
    assert isinstance(plan, RecommendationPlan) and len(plan.model.tables) == 4
    with pytest.raises(InputError, match=r"plan.model: unknown key 'table'"):
        Request(plan={**RAW, "model": {**RAW["model"], "table": []}}).plan_spec()


def test_its_step_is_answered_by_the_analytical_model() -> None:
    plan = Request(plan=RAW).plan_spec()
    answer = predict(Request(plan=plan, mode=Mode.analytic, hardware=load_device("a100_sxm_80gb")))
    assert answer.step_time_us > 0
    assert answer.prediction.uncovered_ops == {}
    assert answer.prediction.graph.ranks == (0, 1)
