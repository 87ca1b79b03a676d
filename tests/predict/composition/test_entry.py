"""What contradicts itself on the command line of train.py is refused, and what no one would read."""

import json
import os
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hydra.core.config_store import ConfigStore
from synthetic import load_toys

import train
from gnnperf.core.errors import InputError
from gnnperf.gnn import LearnerKind, ModelConfig, TrainConfig
from gnnperf.predict import EntryConfig, composed
from gnnperf.predict.composition.command_line import CONF_DIR
from research.baselines.network import Network
from research.baselines.rows import simpler
from research.baselines.training import cells_folder, training_part
from research.baselines.trees import TREE_SETTINGS
from research.benchmarks._learned_jobs import LEARNED
from tests.command import Command


@cache
def given(*words: str) -> EntryConfig:
    return composed("train", EntryConfig, *words)


def test_settings_of_a_learner_on_the_command_line() -> None:
    config = given("experiment=trees", "learner.settings.num_leaves=63")
    assert config.learner.settings == {**TREE_SETTINGS, "num_leaves": 63.0}
    assert (config.row, config.trains_network) == ("trees", False)
    with pytest.raises(InputError, match=r"unknown key 'learner.settings.num_leafs'"):
        given("experiment=trees", "learner.settings.num_leafs=63")


def test_where_records_go() -> None:
    assert cells_folder(given("out=here")) == Path("here/cells")
    assert cells_folder(given("out=here", "cells=there")) == Path("there")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("learner.kind=forest", "learner.kind"),
        ("row=../up", "row: bad value"),
        ("experiment=nope", "no choice 'nope'"),
        ("optim.lr=1", "did you mean 'optim.learning_rate'"),
    ],
)
def test_what_no_one_would_read_is_refused(word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        given(word)


def test_the_network_is_reported_what_is_its_own() -> None:
    config = given("seed=3", "model.num_layers=2", "out=here")
    part = training_part(config)
    assert type(part) is TrainConfig
    assert (part.seed, part.model.num_layers, part.out) == (3, 2, "here")


EXPERIMENTS = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    assert given(f"experiment={name}", "trainer.progress_bar=false").out != ""


def test_every_row_of_the_result_table_is_an_experiment() -> None:
    """What train.py fits is what the table judges: the same learner, under the same name. The hybrid is of gnn."""
    rows = set()
    for name in EXPERIMENTS:
        config = given(f"experiment={name}", "trainer.progress_bar=false")
        if config.row == "mlp":
            assert LEARNED[config.row] == Network(training_part(config))
        elif config.learner.kind not in (LearnerKind.network, LearnerKind.trivial):
            assert LEARNED[config.row] == simpler(config.learner)
        rows.add(config.row)
    assert set(LEARNED) - rows == {"hybrid"}
    assert given("experiment=trivial").learner.kind is LearnerKind.trivial


def test_what_the_rows_of_networks_are_reported() -> None:
    assert given("experiment=gnn", "data.axis=workload").data.axis == "workload"
    assert given("experiment=gnn") == given()
    assert given("experiment=mlp").model == ModelConfig(num_layers=0)
    assert given("experiment=sweep").evaluate_on == ["val"]  # a search never looks at test runs


@pytest.fixture
def toy_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load_toys(monkeypatch, tmp_path / "cache")


def call(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--multirun", "experiment=sweep", *overrides])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # optuna's and SQLAlchemy's own
        train.main()


@pytest.mark.slow
def test_a_search_keeps_the_settings_that_did_best_on_the_validation_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, toy_data: None
) -> None:
    out = tmp_path / "sweep"
    call(monkeypatch, f"out={out}", "hydra.sweeper.n_trials=2", "trainer.max_epochs=1", "seed=choice(5,6)")
    result = yaml.safe_load((out / "optimization_results.yaml").read_text())
    errors = [pd.read_csv(out / str(trial) / "errors.csv") for trial in (0, 1)]
    assert all(set(table["part"]) == {"val"} for table in errors)
    scores = [table.query("node_type == 'all' and predictor == 'gnn'")["gmae"].item() for table in errors]
    assert result["best_value"] == pytest.approx(min(scores))
    assert scores[0] != scores[1]
    best = yaml.safe_load((out / str(scores.index(min(scores))) / ".hydra" / "config.yaml").read_text())
    assert best["optim"]["learning_rate"] == pytest.approx(result["best_params"]["optim.learning_rate"])
    assert best["seed"] == result["best_params"]["seed"] and best["seed"] in (5, 6)
    assert best["model"]["num_layers"] == result["best_params"]["model.num_layers"]


def test_without_the_extra_one_message_states_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Command
) -> None:
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"]["sweeper"], "optuna.yaml")
    sentences = command.refused_by(call, monkeypatch, f"out={tmp_path / 'sweep'}")
    assert "the Optuna sweeper is not installed" in sentences
    assert "pip install 'gnnperf[sweep]'" in sentences
    assert sentences.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


def test_an_agent_of_wandb_trains_what_the_sweep_describes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, toy_data: None
) -> None:
    """The command as wandb's own agent makes it, offline: a sweep and its search by Optuna have the same settings."""
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    pytest.importorskip("wandb").teardown()  # the settings of an earlier test's runs
    sweep = yaml.safe_load((CONF_DIR / "wandb_sweep.yaml").read_text())
    searched = yaml.safe_load((CONF_DIR / "experiment/sweep.yaml").read_text())["hydra"]["sweeper"]["params"]
    assert {name: set(_bounds(one)) for name, one in sweep["parameters"].items()} == {
        name: {float(number) for number in re.findall(r"[\d.]+", text)} for name, text in searched.items()
    }
    values = {name: {"value": min(_bounds(one))} for name, one in sweep["parameters"].items()}
    parts = utils.create_sweep_command_args({"args": values}) | {"env": ["env"], "program": [sweep["program"]]}
    command = [word for one in utils.create_sweep_command(sweep["command"])
               for word in (parts[one[2:-1]] if one.startswith("${") else [one])]  # fmt: skip
    for name, value in {"RUN_ID": "agent1", "MODE": "offline", "SILENT": "true", "DATA_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    (tmp_path / "python").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")  # what the agent's shell gives to Python
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    given = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*given, "trainer.max_epochs=1"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wandb's own
        train.main()
    (out,) = (tmp_path / "outputs/sweep").iterdir()
    assert (out.name, {path.name for path in out.rglob("*.wandb")}) == ("agent1", {"run-agent1.wandb"})
    facts = json.loads((out / "facts.json").read_text())
    errors = pd.read_csv(out / "errors.csv").query("node_type == 'all' and predictor == 'gnn'")
    assert set(errors["part"]) == {"val"} and sweep["metric"] == {"name": "val_gmae", "goal": "minimize"}
    assert facts["val_gmae"] == pytest.approx(errors["gmae"].item())


def _bounds(parameter: dict[str, Any]) -> list[float]:
    return parameter.get("values") or [parameter["min"], parameter["max"]]
