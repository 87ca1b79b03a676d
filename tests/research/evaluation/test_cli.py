"""`gnnperf interventions` and `gnnperf noise-floor` on a small data set on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from traces import mark, op, run_of, trace

from gnnperf.gnn.data.recordings import Recording
from gnnperf.graph import ExecutionGraph, ProfilerCost
from gnnperf.trace.storage import write_run
from research.evaluation.loading import machine_costs, without_profiler_cost
from tests.command import Command
from tests.gnn.data.data_sets import write_card
from tests.whatif.loops import loop

SLEEP = {"kind": "sleep", "a": "plain", "b": "slept", "edit": {"rank": 0, "place": "start", "sleep_us": 30.0}}


def record(folder: Path, sleep_us: float) -> None:
    """Two steps of one rank: |5 + sleep| mm 20 | 15 |."""
    events = []
    for number in range(2):
        begin = number * (40.0 + sleep_us)
        end = begin + 40.0 + sleep_us
        events += [mark(number, begin, end), op("aten::mm", begin + 5 + sleep_us, begin + 25 + sleep_us)]
    write_run(run_of(trace(*events)), folder)
    write_card(folder, 40.0 + sleep_us, world_size=1)


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    for repeat in ("1", "2"):
        record(tmp_path / "plain" / repeat, 0.0)
        record(tmp_path / "slept" / repeat, 30.0)
    (tmp_path / "interventions.json").write_text(json.dumps({"pairs": [SLEEP]}))
    return tmp_path


def test_interventions(data_set: Path, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "out" / "found.json"
    assert "sleep" in command.shown("interventions", data_set, "--json", path)
    result = json.loads(path.read_text())
    assert [t["predicted_us"] for t in result["trials"]] == pytest.approx([30.0, 30.0, -30.0, -30.0])
    assert [t["measured_us"] for t in result["trials"]] == pytest.approx([30.0, 30.0, -30.0, -30.0])
    assert result["summary"][0]["sign_right"] == 1.0
    assert result["left_out"] == []


def test_noise_floor(data_set: Path, command: Command) -> None:
    shown, tables = command.ended(0, "noise-floor", data_set, "--json")
    assert "step unprofiled" in tables
    assert "Across machines: unknown" in tables
    result = json.loads(shown)
    assert {row["median"] for row in result["steps"]} == {0.0}
    assert any(row["group"] == "compute" for row in result["nodes"])


@pytest.mark.parametrize("name", ["interventions", "noise-floor"])
def test_bad_input_is_one_message_and_exit_code_2(name: str, tmp_path: Path, command: Command) -> None:
    assert "is no folder" in command.refused(name, tmp_path / "nowhere")
    assert command.refused(name, tmp_path).startswith("gnnperf: ")


def recording(folder: Path, machine: str, *op_us: float) -> Recording:
    """A recording whose ranks measured these costs per op."""
    folder.mkdir(parents=True)
    ranks = [{"profiler_cost": {"op_us": us, "range_us": 0.5, "call_us": 0.0, "step_us": 7.0}} for us in op_us]
    (folder / "run.json").write_text(json.dumps({"ranks": ranks or [{}]}))
    return Recording(folder, "run", 1, 60.0, 60.0, "", "", 1, machine)


def test_a_machine_costs_the_median_of_its_cards(tmp_path: Path) -> None:
    cards = {"a": (1.0, 1.4), "b": (1.0,), "c": (9.0,), "d": ()}
    result = machine_costs([recording(tmp_path / name, "here", *costs) for name, costs in cards.items()])
    assert list(result) == ["here"]  # means of ranks: 1.2, 1.0, 9.0, none
    assert result["here"].by_kind() == pytest.approx({"op_us": 1.2, "range_us": 0.5, "call_us": 0.0, "step_us": 7.0})


def opened(_: Recording) -> ExecutionGraph:
    """A graph in each of whose nodes one op opens."""
    graph = loop()
    return replace(graph, nodes=graph.nodes.assign(opened_ops=1))


def test_it_is_taken_out_of_graphs_of_known_machines_only(tmp_path: Path) -> None:
    cost = ProfilerCost(op_us=1.0, range_us=0.0, call_us=0.0, step_us=0.0)
    load = without_profiler_cost(opened, {"here": cost})
    external, here = (load(recording(tmp_path / name, name)).nodes["latency_us"] for name in ("elsewhere", "here"))
    recorded = loop().nodes["latency_us"]
    assert external.equals(recorded)
    on_host = (loop().nodes["thread"] >= 0) & (recorded >= 1.0)
    assert on_host.any() and list(here[on_host]) == list(recorded[on_host] - 1.0)
