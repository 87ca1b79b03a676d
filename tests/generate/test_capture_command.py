"""`gnnperf capture SCRIPT`: a folder that the other commands read, with no measurement in it."""

import json
import sys
from pathlib import Path

import pytest
from synthetic import cluster

from gnnperf.analytic import AnalyticPredictor
from gnnperf.graph import load_graph
from tests.command import Command

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


@pytest.fixture
def out(script: Path) -> Path:
    return script.parent / "captured"


def test_the_folder_holds_the_captured_graph_without_labels(script: Path, out: Path, command: Command) -> None:
    assert "program: 2 of 2 ranks, 2 steps" in command.shown("capture", script, "--out", out, "--ranks", 2)
    graph = load_graph(out)
    assert graph.nodes[["start_us", "latency_us", "blocked_us"]].isna().all(axis=None)
    assert graph.edges["lag_us"].isna().all()
    collectives = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert collectives["message_bytes"].tolist() == [8 * 2 * 4.0] * 2  # one bucket per step, float32
    work = graph.nodes["node_type"].isin(["compute", "collective"]).to_numpy()
    assert (AnalyticPredictor().predict(graph, cluster()).latency_us[work] > 0).all()


def test_gnnperf_predict_predicts_it_on_a_gpu_as_planned(
    script: Path, out: Path, tmp_path: Path, command: Command
) -> None:
    command.shown("capture", script, "--out", out, "--ranks", 2)
    for _ in ("fresh", "from the cache of graphs"):
        words = ("--out", tmp_path / "predicted", "--set", f"cache_dir={tmp_path / 'cache'}")
        document = command.document("predict", out, "--gpu", "h100_sxm", "--what-if", "batch=2x", *words)
        assert document["measured_step_time_us"] is None and document["step_time_us"] > 0
        assert document["whatif"]["step_time_us"] > 0


def test_arguments_after_the_dashes_are_the_scripts(script: Path, out: Path, command: Command) -> None:
    words = ("--function", "arguments", "--steps", 1, "--json", "--", 3, "--layers")
    assert json.loads(command.shown("capture", script, "--out", out, *words))["world_size"] == 1
    nodes = load_graph(out).nodes
    assert "[[3,8],[8,3]]" in set(nodes["input_dims"].astype(str))


def test_only_some_ranks_of_many(script: Path, out: Path, command: Command) -> None:
    document = command.document("capture", script, "--out", out, "--ranks", 64, "--only", "3,5", "--steps", 1)
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
    words: list[str], message: str, script: Path, out: Path, command: Command
) -> None:
    given = (word.replace("SCRIPT", str(script)) for word in words)
    assert message in command.refused("capture", *given, "--out", out) and not out.exists()


@pytest.mark.parametrize("key", ["mode=replay", "evidence=other_steps"])
def test_what_needs_measurements_is_refused(key: str, script: Path, out: Path, command: Command) -> None:
    command.shown("capture", script, "--out", out)
    message = command.refused("predict", out, "--out", script.parent / "out", "--set", key)
    assert "captured, not run" in message


def test_inspect_reports_that_times_are_missing(script: Path, out: Path, command: Command) -> None:
    command.shown("capture", script, "--out", out)
    assert "times: the program was captured, not run" in command.shown("inspect", out)
