"""`gnnperf train`: real recordings, few epochs; as train.py with the same keys; which model is favored, by hand."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gnnperf import cli
from gnnperf.gnn import StepMiss, load_checkpoint
from gnnperf.predict.training import Use, Verdict, step_errors, verdict_of
from tests.command import Command, printed

RUNS = ("gpt_l1_w64_s64_b4_acc2_x2_lo", "gpt_l1_w192_s64_b8_x2_lo", "bert_l1_w256_s128_b8_x2_lo")
SMALL = ("--set", "trainer.max_epochs=1", "--set", "model.hidden_channels=8", "--set", "model.num_layers=1")


def copied(folder: Path, dataset: str, runs: tuple[str, ...], repeats: tuple[int, ...] = (1,)) -> Path:
    for run in runs:
        for repeat in repeats:
            shutil.copytree(Path("datasets") / dataset / run / str(repeat), folder / run / str(repeat))
    return folder


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("runs") / "mine", "cpu-gloo", RUNS)


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Words that keep what is made of the recordings for the next training."""
    return "--set", f"data.cache_dir={tmp_path_factory.mktemp('cache')}"


@pytest.fixture(scope="module")
def first(mine: Path, cached: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a training of the folder prints as JSON."""
    before = sorted(mine.rglob("*"))
    shown = printed("train", mine, "--out", tmp_path_factory.mktemp("first") / "out", *SMALL, *cached, "--json")
    assert sorted(mine.rglob("*")) == before
    return dict(json.loads(shown))


def test_a_folder_without_splits_gives_a_checkpoint_and_the_evidence(first: dict[str, Any]) -> None:
    assert first["num_runs"] == {"train": 2, "val": 1}
    assert first["split"]["axis"] == "run" and len(first["split"]["train"]) == 2
    assert first["use"] == "undecided" and first["advice"].startswith("Too little data")
    assert "1 validation run after 2 training runs" in first["evidence"]
    assert first["step_error"]["network"] > 0 and first["step_error"]["difference_low"] is None
    assert first["next"].endswith("--set mode=analytic")
    assert load_checkpoint(Path(first["checkpoint"])).sha256 == first["sha256"]


def test_init_takes_the_sizes_of_the_checkpoint_and_the_last_lines_state_which_model_to_use(
    first: dict[str, Any], mine: Path, cached: tuple[str, str], tmp_path: Path, command: Command
) -> None:
    words = (*cached, "--set", "trainer.progress_bar=false", "--set", "trainer.max_epochs=1")
    start = ("--init", first["checkpoint"], "--out", tmp_path / "second")
    *_, evidence, advice, stated, following = command.shown("train", mine, *start, *words).splitlines()
    assert evidence.startswith("Step error of 1 validation run") and advice.startswith("Too little data")
    assert "sha256" in stated and following.startswith("next: gnnperf predict TRACE --checkpoint")
    checkpoint = load_checkpoint(tmp_path / "second" / "checkpoint.pt")
    assert (checkpoint.model.hidden_channels, checkpoint.model.num_layers) == (8, 1)
    training = checkpoint.provenance["training"]
    assert training["init_from"] == first["sha256"] and training["optim"]["learning_rate"] == 1e-3


def test_source_trains_a_network_for_transfer(
    mine: Path, cached: tuple[str, str], tmp_path: Path, command: Command
) -> None:
    there = copied(tmp_path / "there", "cpu-again", RUNS[1:])
    words = (mine, "--source", there, "--out", tmp_path / "moved")
    document = command.document("train", *words, *cached, "--set", "trainer.max_epochs=1")
    checkpoint = load_checkpoint(Path(document["checkpoint"]))
    assert checkpoint.speed_factors is not None and checkpoint.model.hidden_channels == 32
    assert document["step_error"]["analytic"] > 0
    keys = ("--set", f"transfer={document['checkpoint']}", "--set", "memory=false")
    command.shown("predict", there / RUNS[1] / "1", *keys, "--out", tmp_path / "predicted", "--quiet")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["MINE/bert_l1_w256_s128_b8_x2_lo"], "too little data: 1 run;"),
        (["MINE", "--init", "nowhere.pt"], "nowhere.pt: no such file"),
        (["MINE", "--source", "nowhere"], "nowhere: holds no complete recordings"),
        (["MINE", "--set", "trainer.epochs=3"], "did you mean 'trainer.max_epochs'"),
        (["MINE", "--set", "experiment=trees"], "python train.py experiment=NAME"),
        (["MINE", "--set", "data.axis=size"], "splits.json: no such file"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing(
    words: list[str], message: str, mine: Path, tmp_path: Path, command: Command
) -> None:
    out, given = tmp_path / "out", (word.replace("MINE", str(mine)) for word in words)
    assert message in command.refused("train", *given, "--out", out) and not out.exists()


def test_init_and_source_exclude_each_other(mine: Path, command: Command) -> None:
    words = ["train", str(mine), "--init", "a.pt", "--source", "there"]
    assert "not allowed with" in command.refused_by(cli.main, words)


def errors(network: list[float], analytic: list[float], repeats: int = 1) -> pd.DataFrame:
    rows = [(f"run{i}", n, a) for i, (n, a) in enumerate(zip(network, analytic, strict=True)) for _ in range(repeats)]
    return pd.DataFrame(rows, columns=["run", "network", "analytic"])


def test_errors_are_means_over_runs_of_means_over_their_recordings() -> None:
    table = pd.concat([errors([0.1], [0.3], repeats=3), errors([0.2, 0.4], [0.3, 0.5]).iloc[1:]])
    verdict = verdict_of(table, num_train_runs=7)
    assert (verdict.network, verdict.analytic) == pytest.approx((0.25, 0.4))
    assert (verdict.num_train_runs, verdict.num_val_runs) == (7, 2)


@pytest.mark.parametrize(
    ("network", "analytic", "use"),
    [
        ([0.05] * 6, [0.10] * 6, Use.NETWORK),
        ([0.20] * 6, [0.10] * 6, Use.ANALYTIC),
        ([0.05] * 5, [0.10] * 5, Use.UNDECIDED),  # five runs may agree by chance
        ([0.05, 0.15] * 3, [0.10] * 6, Use.UNDECIDED),
        ([0.10] * 6, [0.10] * 6, Use.UNDECIDED),
    ],
)
def test_a_model_is_favored_where_six_runs_agree(network: list[float], analytic: list[float], use: Use) -> None:
    assert verdict_of(errors(network, analytic), 20).use is use


def test_sentences_hold_the_counts_both_errors_and_the_interval() -> None:
    verdict = Verdict(12, 6, 0.081, 0.09, (-0.03, 0.012))
    assert verdict.evidence == (
        "Step error of 6 validation runs after 12 training runs: 8.1 % with the network, 9.0 % with the analytical "
        "model, difference -0.9 points (95 % interval -3.0 points to +1.2 points)."
    )
    assert verdict.advice == (
        "Too little data to decide: use the analytical model until more validation runs favor the network."
    )
    one = Verdict(1, 1, 0.1, 0.2, (math.nan, math.nan))
    assert "1 validation run after 1 training run:" in one.evidence and "no interval" in one.evidence
    assert "at least 6 validation runs" in one.advice


def test_log_errors_become_shares_of_the_measured_step() -> None:
    network = [StepMiss("a", math.log(100 / 120), {}, {})]  # predicted 120 us, measured 100 us
    analytic = [StepMiss("a", math.log(100 / 50), {}, {})]
    table = step_errors(network, analytic)
    assert table[["network", "analytic"]].to_numpy()[0] == pytest.approx([0.2, 0.5])
