"""Which learner a configuration asks for, and what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import prepared

from gnnperf.gnn.training.config import LearnerConfig, LearnerKind
from research.baselines.hops import OneHop
from research.baselines.rows import requested_fits, simpler
from research.baselines.trees import TREE_SETTINGS, Own


@pytest.mark.parametrize(("kind", "choice"), [(LearnerKind.trees, Own()), (LearnerKind.trees_hops, OneHop())])
def test_the_kind_decides_the_columns_and_settings_are_those_by_hand(kind: LearnerKind, choice: object) -> None:
    result = simpler(LearnerConfig(kind))
    assert (result.choice, result.settings) == (choice, TREE_SETTINGS)


def test_a_setting_takes_the_place_of_the_one_by_hand() -> None:
    trees = simpler(LearnerConfig(LearnerKind.trees, {"num_leaves": 63.0, "lambda_l2": 2.5}))
    assert trees.settings == {**TREE_SETTINGS, "num_leaves": 63, "lambda_l2": 2.5}
    assert isinstance(trees.settings["num_leaves"], int)  # LightGBM refuses 63.0


def test_fits(tmp_path: Path) -> None:
    """A fit carries the row's name, its seed and what was given; where nothing is learned there is none."""
    data = prepared(tmp_path)
    assert requested_fits(LearnerConfig(LearnerKind.trivial), "none", data, 3) == {}
    requested = LearnerConfig(LearnerKind.trees, {"num_leaves": 4})
    result = requested_fits(requested, "small", data, 3)
    assert list(result) == ["small"]
    assert result["small"].seed == 3 and result["small"].fit_s > 0
    assert result["small"].given == repr(simpler(requested)) and "'num_leaves': 4" in result["small"].given
    assert result["small"].estimate.step_us(data.steps["test"][0]) > 0
