"""Every script of examples/ runs and is short."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf import datasets
from gnnperf.gnn.data.prepare import PreparedData

FOLDER = Path(__file__).resolve().parents[1] / "examples"
TRACE = "datasets/cpu-gloo/bert_l1_w256_s128_b8_x2_lo/1"
SCRIPTS = {
    "add_gpu": ([], "my_gpu"),
    "evaluate": ([], "interval_ratio"),
    "predict_trace": ([TRACE, "epyc_9654"], "{'batch': {'factor': 2}}"),
    "train_gnn": (["--epochs", "2"], "network"),
    "transfer": (["--epochs", "1", "--graphs", "1"], "network, tuned on 1 graphs"),
}


def test_all_of_them_are_tested_and_none_has_more_than_a_hundred_lines() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in FOLDER.glob("*.py")}
    assert set(lengths) == set(SCRIPTS) and max(lengths.values()) <= 100


@pytest.mark.filterwarnings("ignore:There exist:UserWarning")  # of torch-geometric, on names of edge types
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_runs(
    name: str, data: PreparedData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, expected = SCRIPTS[name]
    data = replace(data, steps=data.steps | {"test": data.steps["train"]})  # more than one graph
    monkeypatch.setattr(datasets, "prepared", lambda *_: data)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    monkeypatch.syspath_prepend(FOLDER)  # as Python does for a script
    main = runpy.run_path(str(FOLDER / f"{name}.py"))["main"]
    main(*words) if name == "predict_trace" else main()
    assert expected in capsys.readouterr().out
