"""`gnnperf capture SCRIPT`: a folder that the other commands read, with no measurement in it."""

import json
import sys
from pathlib import Path

import pytest
from synthetic import cluster

from gnnperf import cli
from gnnperf.analytic import AnalyticPredictor
from gnnperf.graph import load_graph

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from layers import width

def build():
    model = DistributedDataParallel(nn.Linear(8, width, bias=False))
    rows = torch.ones(4, 8)
    def step():
        model.zero_grad()
        model(rows).sum().backward()
    return step

def arguments():
    rows = torch.ones(int(sys.argv[1]), 8)
    return lambda: rows.mm(rows.t())

def configured(layers):
    return lambda: None

def looking():
    rows = torch.ones(4)
    return lambda: rows.sum().item()

if __name__ == "__main__":
    raise SystemExit("it was run")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script with a module next to it; the path and the arguments of this process stay as they were."""
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.setattr("sys.argv", ["pytest"])
    monkeypatch.delitem(sys.modules, "layers", raising=False)
    (tmp_path / "layers.py").write_text("width = 2\n")
    (tmp_path / "program.py").write_text(SCRIPT)
    return tmp_path / "program.py"


def captured(script: Path, *words: str) -> Path:
    out = script.parent / "captured"
    assert cli.main(["capture", str(script), "--out", str(out), *words]) == 0
    return out


def test_the_folder_holds_the_captured_graph_without_labels(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load_graph(captured(script, "--ranks", "2"))
    assert "program: 2 of 2 ranks, 2 steps" in capsys.readouterr().out
    assert graph.nodes[["start_us", "latency_us", "blocked_us"]].isna().all(axis=None)
    collectives = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert collectives["message_bytes"].tolist() == [8 * 2 * 4.0] * 2  # one bucket per step, float32
    assert (AnalyticPredictor().predict(graph, cluster()).latency_us[collectives.index] > 0).all()


def test_gnnperf_predict_predicts_it_on_a_gpu_as_planned(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = captured(script, "--ranks", "2"), str(tmp_path / "predicted")
    capsys.readouterr()
    for _ in ("fresh", "from the cache of graphs"):
        cache = ["--set", f"cache_dir={tmp_path / 'cache'}"]
        words = [str(folder), "--gpu", "h100_sxm", "--what-if", "batch=2x", "--out", out, "--json", *cache]
        assert cli.main(["predict", *words]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["measured_step_time_us"] is None and document["step_time_us"] > 0
        assert document["whatif"]["step_time_us"] > 0


def test_arguments_after_the_dashes_are_the_scripts(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = captured(script, "--function", "arguments", "--steps", "1", "--json", "--", "3", "--layers")
    assert json.loads(capsys.readouterr().out)["world_size"] == 1
    nodes = load_graph(folder).nodes
    assert "[[3,8],[8,3]]" in set(nodes["input_dims"].astype(str))


def test_only_some_ranks_of_many(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captured(script, "--ranks", "64", "--only", "3,5", "--steps", "1", "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["ranks"], document["world_size"]) == ([3, 5], 64)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SCRIPT", "--function", "bild"], "no function 'bild'. Allowed: build, arguments, configured, looking"),
        (["SCRIPT", "--function", "configured"], "configured takes layers"),
        (["SCRIPT", "--function", "looking"], "program.py:26: aten._local_scalar_dense needs numbers"),
        (["SCRIPT", "--ranks", "0"], "world_size"),
        (["nowhere.py"], "nowhere.py: no such Python file"),
        (["layers.txt"], "no such Python file"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing(
    words: list[str], message: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = script.parent / "out"
    assert cli.main(["capture", *(w.replace("SCRIPT", str(script)) for w in words), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not out.exists()


@pytest.mark.parametrize("key", ["mode=replay", "evidence=other_steps"])
def test_what_needs_measurements_is_refused(key: str, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", str(captured(script)), "--out", str(script.parent / "out"), "--set", key]) == 2
    assert "captured, not run" in capsys.readouterr().err


def test_inspect_reports_that_times_are_missing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(captured(script))]) == 0
    assert "times: the program was captured, not run" in capsys.readouterr().out
