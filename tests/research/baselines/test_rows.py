"""Which learner a configuration asks for, and what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import prepared

from gnnperf.core.errors import InputError
from gnnperf.gnn.training.config import LearnerConfig, LearnerKind
from research.baselines.pooled import POOLED_START, PooledSage
from research.baselines.rows import TRIVIAL, requested_fits, simpler
from research.baselines.sequence import OpsAsText
from research.baselines.trees import TREE_START, Trees


@pytest.mark.parametrize(
    ("kind", "learner", "name"),
    [
        (LearnerKind.trees, Trees, "trees"),
        (LearnerKind.trees_hops, Trees, "trees_with_hops"),
        (LearnerKind.graphsage, PooledSage, "graphsage_pooled"),
        (LearnerKind.ops_as_text, OpsAsText, "ops_as_text"),
    ],
)
def test_who_is_requested_for(kind: LearnerKind, learner: type, name: str) -> None:
    result = simpler(LearnerConfig(kind, trials=3, store="here"))
    assert isinstance(result.tunable, learner)
    assert (result.tunable.name, result.trials, result.store) == (name, 3, Path("here"))
    assert result.tunable.start == learner().start  # by hand, unless something else is stated


def test_a_setting_takes_the_place_of_the_one_by_hand() -> None:
    trees = simpler(LearnerConfig(LearnerKind.trees, {"num_leaves": 63.0, "lambda_l2": 2.5})).tunable
    assert trees.start == {**TREE_START, "num_leaves": 63, "lambda_l2": 2.5}
    assert isinstance(trees.start["num_leaves"], int)  # LightGBM refuses 63.0
    assert simpler(LearnerConfig(LearnerKind.graphsage)).tunable.start == POOLED_START


def test_a_setting_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match=r"no setting 'num_leafs'.*num_leaves"):
        simpler(LearnerConfig(LearnerKind.trees, {"num_leafs": 3.0}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trials": 0}, "learner.trials"),
        ({"kind": LearnerKind.trees, "store": ""}, "learner.store"),
        ({"trials": 2}, "1 where the learner is network"),
        ({"kind": LearnerKind.trivial, "settings": {"num_leaves": 3.0}}, "none where the learner is trivial"),
        ({"kind": LearnerKind.trees, "settings": {"num_leaves": -3.0}}, "learner.settings.num_leaves"),
        ({"kind": LearnerKind.trees, "settings": {"lambda_l2": float("nan")}}, "learner.settings.lambda_l2"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LearnerConfig(**given)  # type: ignore[arg-type]


def test_fits(tmp_path: Path) -> None:
    """A fit carries the row's name, its seed and what was given; where nothing is learned there is none."""
    data = prepared(tmp_path)
    assert requested_fits(LearnerConfig(LearnerKind.trivial), "none", data, 3) == {}
    requested = LearnerConfig(LearnerKind.graphsage, {"hidden_channels": 4})
    result = requested_fits(requested, "small", data, 3)
    assert list(result) == ["small"]
    assert result["small"].seed == 3 and result["small"].fit_s > 0
    assert result["small"].given == repr(simpler(requested)) and "'hidden_channels': 4" in result["small"].given
    assert result["small"].answer.step_us(data.steps["test"][0]) > 0


def test_trivial_answers_need_no_seed(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    step = data.steps["test"][0]
    for row, learner in TRIVIAL.items():
        assert learner.fit(data, 0).step_us(step) == learner.fit(data, 1).step_us(step), row
