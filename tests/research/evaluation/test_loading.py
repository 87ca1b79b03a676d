"""From a recording to its graph."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.gnn.data.recordings import Recording
from gnnperf.graph import ProfilerCost
from gnnperf.graph.execution_graph import ExecutionGraph
from research.evaluation.loading import machine_costs, without_profiler_cost
from tests.whatif.loops import loop


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
