"""`record` in this process: one rank, no process group."""

import getpass
import gzip
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.record import record
from gnnperf.record.card import status
from gnnperf.record.recorder import kineto_without_environment

FAST: dict[str, Any] = {"warmup_steps": 1, "unprofiled_steps": 3, "profiled_steps": 2}


def train(run_dir: Path, steps: int | None = None, **about: Any) -> int:
    """Train a product of two matrices; return the number of steps run."""
    weight = torch.ones(8, 8, requires_grad=True)
    count = 0
    with record(run_dir, **(FAST | about)) as step:
        while not step.done and count != steps:
            (weight @ weight).sum().backward()
            count += 1
            step()
    return count


def read_trace(run_dir: Path, kind: str = "kineto") -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(gzip.decompress((run_dir / f"rank_0.{kind}.json.gz").read_bytes()))
    return trace


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GNNPERF_TEST_TOKEN", "s3cr3t-t0ken")
        steps = train(folder, workload="toy", parameters={"width": 8}, parallelism={"dp": 1}, batch=4)
    # Two under a profiler that does not write yet, three for the memory,
    # of which the first has no profiler, one whose execution trace is written.
    assert steps == 1 + 3 + 2 + 2 + 3 + 1
    return folder


def test_the_trace_holds_the_profiled_steps_with_shapes(run: Path) -> None:
    events = [e for e in read_trace(run)["traceEvents"] if e["ph"] == "X"]
    marks = [e["name"] for e in events if e["name"].startswith("ProfilerStep")]
    assert marks == ["ProfilerStep#2", "ProfilerStep#3"]
    products = [e for e in events if e["name"] == "aten::mm"]
    assert len(products) == 2 * 3  # one forward, two backward
    assert products[0]["args"]["Input Dims"] == [[8, 8], [8, 8]]


def test_the_card_states_what_ran_and_how_long(run: Path) -> None:
    card = json.loads((run / "run.json").read_text())
    assert card["status"] == "complete" and card["world_size"] == 1
    assert (card["workload"], card["parameters"], card["parallelism"], card["batch"], card["precision"]) == (
        "toy", {"width": 8}, {"dp": 1}, 4, "float32")  # fmt: skip
    assert card["versions"]["torch"] == torch.__version__
    rank = card["ranks"][0]
    assert rank["host"] == 0 and rank["cores"] == sorted(os.sched_getaffinity(0)) and rank["device"]["cores"] >= 1
    for kind, steps in (("without_profiler", 3), ("with_profiler", 2)):
        samples = rank[kind]["samples_us"]
        assert len(samples) == rank[kind]["steps"] == card["step_time"][kind]["steps"] == steps
        assert min(samples) > 0
        assert min(samples) - 1 <= card["step_time"][kind]["median_us"] <= max(samples) + 1


def test_the_card_states_when_where_and_how_large(run: Path) -> None:
    card = json.loads((run / "run.json").read_text())
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", card["recorded_at"])
    assert card["machine"] == card["hosts"][0]["fingerprint"] and card["hosts"][0]["cores"] >= 1
    memory = card["ranks"][0]["peak_memory"]
    assert memory["peak_bytes"] >= memory["held_between_steps_bytes"] >= 2 * 8 * 8 * 4  # the weight and its gradient
    assert card["link"] == {}  # one rank talks to no one


def test_what_the_caller_reports_is_in_the_card(tmp_path: Path) -> None:
    tables = [{"table": 0, "pooling_mean": 4.0}]
    train(tmp_path, repeat=2, conditions={"sleep_us": 5.0}, index_statistics=tables)
    card = json.loads((tmp_path / "run.json").read_text())
    assert (card["repeat"], card["conditions"]) == (2, {"sleep_us": 5.0})
    assert card["ranks"][0]["index_statistics"] == tables


def test_nothing_of_the_environment_is_retained(run: Path) -> None:
    assert sorted(p.name for p in run.iterdir()) == ["rank_0.et.json.gz", "rank_0.kineto.json.gz", "run.json"]
    text = json.dumps(read_trace(run)) + json.dumps(read_trace(run, "et")) + (run / "run.json").read_text()
    assert "host_name" not in text and "traceName" not in text
    for secret in ("s3cr3t-t0ken", str(run.parent), str(Path.cwd()), str(Path.home()) + "/", "/tmp",
                   f'"{socket.gethostname()}"', f'"{getpass.getuser()}"'):  # fmt: skip
        assert secret not in text


def test_too_few_steps_leave_a_broken_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"11 of 12 steps ran.*step\(\) at the end of every training step"):
        train(tmp_path / "run", steps=11)
    assert status(tmp_path / "run") == "broken"
    assert not (tmp_path / "run" / "rank_0.kineto.json.gz").exists()


def test_an_error_in_training_leaves_a_broken_run_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), record(tmp_path, **FAST) as step:
        step()
        raise ZeroDivisionError("/home/somebody/secret")
    card = json.loads((tmp_path / "run.json").read_text())
    assert (card["status"], card["reason"]) == ("broken", "rank 0: ZeroDivisionError")


def test_a_broken_run_is_recorded_again_and_a_complete_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        train(tmp_path, steps=2)
    train(tmp_path)
    written = (tmp_path / "run.json").read_bytes()
    with pytest.raises(InputError, match="holds a complete run"):
        train(tmp_path)
    assert (tmp_path / "run.json").read_bytes() == written


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profiled_steps": 0}, "profiled_steps: bad value 0"),
        ({"warmup_steps": -1}, "warmup_steps: bad value -1"),
        ({"parameters": {"width": float("nan")}}, "cannot go into a card"),
        ({"parameters": {"width": object()}}, "cannot go into a card"),
        ({"conditions": {"at": object()}}, "cannot go into a card"),
        ({"index_statistics": [{"mean": float("inf")}]}, "cannot go into a card"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        train(tmp_path / "file" / "run")


def test_the_execution_trace_is_of_one_step(run: Path) -> None:
    trace = read_trace(run, "et")
    assert sorted(trace) == ["nodes", "schema"]
    assert sum(node["name"] == "aten::mm" for node in trace["nodes"]) == 3


def test_the_execution_trace_can_be_left_out(tmp_path: Path) -> None:
    assert train(tmp_path, execution_trace=False) == 1 + 3 + 2 + 2 + 3
    assert not (tmp_path / "rank_0.et.json.gz").exists()


TRACE = b"""
 {
    "schemaVersion": 1,
    "deviceProperties": [],
    "distributedInfo": {"rank": 1, "pg_config": [{"ranks": [0, 1]}]},
      "host_name": "somewhere",
      "a_key_of_the_future": {"user": "somebody"},
    "traceEvents": [
  {"ph": "X", "name": "a [b] ]", "args": {"Input Dims": [[2, 3]]}}
  ],"traceName": "/home/somebody/trace.json" }
"""


def test_events_and_wanted_keys_stay() -> None:
    cleaned = json.loads(kineto_without_environment(TRACE))
    assert cleaned == {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {"rank": 1, "pg_config": [{"ranks": [0, 1]}]},
        "traceEvents": [{"ph": "X", "name": "a [b] ]", "args": {"Input Dims": [[2, 3]]}}],
    }
