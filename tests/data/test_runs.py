"""Recordings as examples: mean labels over steps and recordings, step times from cards or from the trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import read

from gnnperf.data.runs import RunStep, merged, run_of, typical, workload_of
from gnnperf.errors import InputError
from gnnperf.schema import WORK_TYPES


def recording(name: str, latency_us: float, step_us: float = 100.0) -> RunStep:
    found = read("a")
    nodes = found.graph.nodes.assign(latency_us=latency_us)
    return RunStep(name, replace(found.graph, nodes=nodes, fingerprint=name), found.cluster, step_us)


def labels(step: RunStep) -> set[float]:
    nodes = step.graph.nodes
    return set(nodes["latency_us"][nodes["node_type"].isin([str(t) for t in WORK_TYPES])])


@pytest.mark.parametrize(
    ("name", "run"),
    [("gpt/1", "gpt"), ("gpt/12", "gpt"), ("gpt", "gpt"), ("torchrec/a2a", "torchrec/a2a"), ("1", "1")],
)
def test_repeats_belong_to_one_run(name: str, run: str) -> None:
    assert run_of(name) == run


def test_recordings_of_a_run_become_one_example_with_mean_labels() -> None:
    first, other, second = recording("x/1", 2.0, 100.0), recording("y/1", 7.0), recording("x/2", 4.0, 120.0)
    found = merged([first, other, second])
    assert [step.run for step in found] == ["x", "y"]
    assert labels(found[0]) == {3.0}
    assert found[0].step_us == 110.0
    assert found[0].graph.fingerprint != first.graph.fingerprint
    assert labels(found[1]) == {7.0}


def test_a_label_of_one_recording_is_kept() -> None:
    first, second = recording("x/1", 2.0), recording("x/2", np.nan)
    assert labels(merged([first, second])[0]) == {2.0}


def test_the_workload_is_what_the_card_says(tmp_path: Path) -> None:
    assert workload_of(tmp_path) == ""  # no card; a run's name says nothing
    for card, workload in (("{}", ""), ('{"workload": null}', ""), ('{"workload": "dlrm"}', "dlrm")):
        (tmp_path / "run.json").write_text(card)
        assert workload_of(tmp_path) == workload
    (tmp_path / "run.json").write_text("[")
    with pytest.raises(InputError, match="not JSON"):
        workload_of(tmp_path)


def test_a_step_keeps_the_workload() -> None:
    steps = [typical(replace(read("a"), run=name, workload="dlrm")) for name in ("x/1", "x/2")]
    assert [s.workload for s in (*steps, *merged(steps))] == ["dlrm"] * 3


def test_the_typical_step_of_a_run() -> None:
    run = read("a")
    step = typical(run)
    assert step.graph.nodes["latency_us"].tolist() == pytest.approx(run.graph.nodes["latency_us"].tolist(), nan_ok=True)
    assert step.step_us == run.graph.steps[0].makespan_us  # a window of one step has no period
    with pytest.raises(InputError, match="no whole step"):
        typical(replace(run, graph=replace(run.graph, steps=())))
