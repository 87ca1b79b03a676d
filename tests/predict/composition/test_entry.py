"""What contradicts itself on the command line of train.py is refused, and what no one would read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.training.config import TrainConfig
from gnnperf.predict.composition import composed
from gnnperf.predict.composition.entry import EntryConfig, training_part
from research.baselines.trees import TREE_START


def given(*words: str) -> EntryConfig:
    return composed("train", EntryConfig, *words)


def test_settings_of_a_learner_on_the_command_line() -> None:
    config = given("experiment=trees", "learner.settings.num_leaves=63", "learner.trials=4")
    assert config.learner.settings == {**TREE_START, "num_leaves": 63.0}
    assert (config.row, config.learner.trials, config.trains_network) == ("trees", 4, False)
    with pytest.raises(InputError, match=r"unknown key 'learner.settings.num_leafs'"):
        given("experiment=trees", "learner.settings.num_leafs=63")


def test_where_records_go() -> None:
    assert given("out=here").cells_folder == Path("here/cells")
    assert given("out=here", "cells=there").cells_folder == Path("there")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["experiment=trees", "optim.learning_rate=1e-2"], "optim.learning_rate: 0.01 is for the network"),
        (["experiment=trees", "model=mlp"], "model.num_layers: 0 is for the network, and the learner trees"),
        (["experiment=[demo,trees]"], "model.hidden_channels: 48"),
        (["experiment=trivial", "resume=auto"], "resume: 'auto'"),
        (["experiment=graphsage", "init_from=a/checkpoint.pt"], "init_from: 'a/checkpoint.pt'"),
        (["experiment=[trees,pretrained]", "pretrain.mirror=a"], "pretrain.mirror: 'a'"),
        (["learner.kind=forest"], "learner.kind"),
        (["learner.trials=3"], "1 where the learner is network"),
        (["row=../up"], "row: bad value"),
    ],
)
def test_what_no_one_would_read_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        given(*words)


def test_the_network_is_reported_what_is_its_own() -> None:
    config = given("seed=3", "model.num_layers=2", "out=here")
    part = training_part(config)
    assert type(part) is TrainConfig
    assert (part.seed, part.model.num_layers, part.out) == (3, 2, "here")
