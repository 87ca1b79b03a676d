"""train.py from the command line to the checkpoint, on made-up runs."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import cluster, load_toys, toy_run

import train
from gnnperf.cli import main as gnnperf
from gnnperf.gnn import Processor, load_checkpoint
from gnnperf.predict.gnn import GnnPredictor
from research.evaluation.records import read_records
from tests.command import Command
from tests.gnn.data.data_sets import carded

SMALL = ("trainer.max_epochs=2", "trainer.progress_bar=false", "model.hidden_channels=8")


@pytest.fixture(scope="module", autouse=True)
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        load_toys(patch, tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def trained(toy_data: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a training, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("trained"), io.StringIO()
    carded(folder / "data" / "e", Processor("Epyc", "AVX2"))  # the run to validate on
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        call(patch, f"out={folder / 'out'}", f"data.path={folder / 'data'}", "row=small", "seed=3")
    return folder / "out", printed.getvalue()


def call(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *SMALL, *overrides])
    train.main()


def test_a_checkpoint_that_predicts(trained: tuple[Path, str]) -> None:
    out, printed = trained
    checkpoint = load_checkpoint(out / "checkpoint.pt")
    parts = ("train: 4 steps", "val: error", "test: error", "op median", "nearest run", "analytic", checkpoint.sha256)
    for part in (*parts, "run, test: step time"):
        assert part in printed
    assert set(pd.read_csv(out / "errors.csv")["predictor"]) == {"gnn", "base", "analytic", "op median", "nearest run"}
    estimate = GnnPredictor(checkpoint).predict(toy_run(9), cluster())
    assert np.isfinite(estimate.latency_us).all()
    assert checkpoint.provenance["training"]["optim"]["huber_delta"] == 0.05
    assert checkpoint.provenance["training"]["processors"] == [{"name": "Epyc", "capability": "AVX2"}]


def test_what_there_is_to_look_at(trained: tuple[Path, str]) -> None:
    out, _ = trained
    names = {f"val_{name}" for name in ("comparison", "errors_by_family", "errors_by_op_name", "errors_by_run")}
    stems = {path.stem for path in (out / "tables").iterdir() if path.stem.startswith("val")}
    assert stems == {*names, "val_predictions", "val_rows", "val_worst_nodes"}
    by_family = pd.read_csv(out / "tables" / "val_errors_by_family.csv")
    assert by_family["time_share"].sum() == pytest.approx(1.0)
    assert by_family["nodes"].sum() == len(pd.read_csv(out / "tables" / "val_predictions.csv")) == 11
    assert "Node latencies of the validation runs" in (out / "figures" / "val_parity.html").read_text()
    written = json.loads((out / "facts.json").read_text())
    assert written.pop("checkpoint_sha256") == load_checkpoint(out / "checkpoint.pt").sha256
    assert set(written) == {"val_gmae"} and 0 < written["val_gmae"] < 1


def test_the_network_and_the_hybrid_stand_with_trivial_predictors(trained: tuple[Path, str]) -> None:
    out, _ = trained
    cells = {record.origin.row: record for record in read_records(out / "cells" / "test")}
    assert {"small", "small-hybrid", "analytic", "ridge-step"} < set(cells)
    assert cells["small"].origin.learner == f"checkpoint {load_checkpoint(out / 'checkpoint.pt').sha256}"
    rows = pd.read_csv(out / "tables" / "test_rows.csv").set_index(["row", "of"])
    errors = pd.read_csv(out / "errors.csv").query("part == 'test' and node_type == 'all' and predictor == 'gnn'")
    assert rows.loc[("small", "nodes"), "gmae"] == pytest.approx(errors["gmae"].item(), rel=0.5)


def test_without_the_research_code_the_network_trains_and_other_learners_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: Command
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    call(monkeypatch, f"out={tmp_path / 'network'}", "evaluate_on=[val]")
    printed = capsys.readouterr().out
    assert "val: error of node latencies" in printed and "nearest run" in printed and "step time" not in printed
    assert (
        set(pd.read_csv(tmp_path / "network" / "errors.csv")["part"]) == {"val"}
        and not (tmp_path / "network" / "cells").exists()
    )
    message = command.refused_by(call, monkeypatch, "experiment=trees", f"out={tmp_path / 'trees'}")
    assert "experiment: 'learner' is not installed" in message
    assert not (tmp_path / "trees").exists()


def test_learners_that_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several trainings leave their cells in one folder, from which one command states who is better."""
    shared = ("data.axis=run", f"out={tmp_path / 'out'}", f"cells={tmp_path / 'cells'}")
    call(monkeypatch, "experiment=trees", "learner.settings.min_child_samples=1", "seed=0,1", *shared, "--multirun")
    call(monkeypatch, "experiment=trivial", *shared)
    printed = capsys.readouterr().out
    assert "trees" in printed and "run, val: step time" in printed
    assert {path.stem for path in (tmp_path / "cells" / "test" / "run" / "trees").iterdir()} == {"0", "1"}
    assert not (tmp_path / "out" / "checkpoint.pt").exists()
    assert gnnperf(["improvement", str(tmp_path / "cells" / "test"), "--of", "trees"]) == 0
    assert "over ridge-step" in capsys.readouterr().out


def test_a_setting_that_a_learner_lacks_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    words = ("experiment=trees", "+learner.settings.depth=3", f"out={tmp_path / 'out'}")
    assert "no setting 'depth'" in command.refused_by(call, monkeypatch, *words)
    assert not (tmp_path / "out").exists()


def test_a_network_that_is_there_trains_on(
    trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a rate that moves nothing it stays what it was; the file states what it came from."""
    first, second = trained[0], tmp_path / "second"
    before = load_checkpoint(first / "checkpoint.pt")
    still = ("optim.learning_rate=1e-12", "optim.weight_decay=0", "evaluate_on=[val]")
    call(monkeypatch, f"out={second}", "experiment=fine_tune", f"init_from={first / 'checkpoint.pt'}", *still)
    after = load_checkpoint(second / "checkpoint.pt")
    assert after.provenance["training"]["init_from"] == before.sha256
    assert before.provenance["training"]["init_from"] is None
    name = "layers.5.own.weight"
    assert np.allclose(after.weights[name], before.weights[name], atol=1e-9)
    first_us, second_us = (GnnPredictor(one).predict(toy_run(9), cluster()).latency_us for one in (before, after))
    assert np.allclose(first_us, second_us, rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["resume=nowhere.ckpt"], "resume=nowhere.ckpt: no such file"),
        (["init_from=nowhere.pt"], "nowhere.pt: no such file"),
        (["experiment=fine_tune"], "CHECKPOINT: no such file"),
        (["init_from="], "or null for a new network"),
        (["init_from=OUT/checkpoint.pt"], "another folder than that of init_from"),
    ],
)
def test_a_bad_start_is_one_message_and_leaves_nothing(
    words: list[str], given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    out = tmp_path / "out"
    overrides = (word.replace("OUT", str(out)) for word in words)
    assert given in command.refused_by(call, monkeypatch, *overrides, f"out={out}")
    assert list(out.rglob("*")) == []


def test_a_refusal_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit):
        call(monkeypatch, f"out={tmp_path / 'out'}", "resume=nowhere.ckpt")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
