"""Another machine's recordings at the speed of our own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import read

from gnnperf.gnn.data.prepare import DataConfig, in_own_scale, machine_scales_of, prepare, scaled
from gnnperf.gnn.data.runs import IsolatedLabels, RunGraph, RunStep, typical
from gnnperf.gnn.data.splits import Split

OURS = tuple(replace(typical(read(name)), run=f"{name}/1") for name in "abcdefgh")
NEAR = 0.01  # effects are shrunk by their priors


def there(run: RunStep, factor: float | np.ndarray, name: str) -> RunStep:
    """The run on a machine that takes `factor` times as long for everything."""
    nodes = run.graph.nodes.assign(latency_us=run.graph.nodes["latency_us"] * factor)
    isolated = IsolatedLabels(run.isolated.usual_us * factor, run.isolated.steady_us * factor)
    step_us = run.step_us * float(np.mean(factor))
    return replace(run, run=name, graph=replace(run.graph, nodes=nodes), step_us=step_us, isolated=isolated)


@pytest.mark.parametrize("factor", [0.3, 1.0, 7.0])
def test_what_it_recorded_comes_back_as_ours(factor: float) -> None:
    result = scaled(
        there(OURS[0], factor, "x/1"), machine_scales_of([(there(run, factor, run.run), run) for run in OURS])
    )
    assert result is not None
    given, ours = (run.graph.nodes["latency_us"].to_numpy(np.float64) for run in (result, OURS[0]))
    known = np.isfinite(ours)
    np.testing.assert_allclose(given[known], ours[known], rtol=NEAR)
    np.testing.assert_allclose(result.isolated.usual_us[known], OURS[0].isolated.usual_us[known], rtol=NEAR)
    np.testing.assert_allclose(result.isolated.steady_us[known], OURS[0].isolated.steady_us[known], rtol=NEAR)
    assert result.step_us == pytest.approx(OURS[0].step_us, rel=NEAR)
    assert result.graph.edges["lag_us"].isna().all()


def test_a_data_set_that_shares_no_run_is_taken_as_it_is() -> None:
    other = there(OURS[1], 2.0, "more/new/1")
    result, machine_scales = in_own_scale([OURS[0], other], ["more/"])
    assert result == [OURS[0], other]
    assert "shares no run with ours" in str(machine_scales["more/"])


def test_kinds_have_machine_scales_of_their_own() -> None:
    """Compute takes three times as long there, all else as long as here: the step does not take three times as long."""

    def slower(run: RunStep, name: str) -> RunStep:
        factor = np.where(run.graph.nodes["node_type"] == "compute", 3.0, 1.0)  # [num_nodes]
        return replace(there(run, factor, name), step_us=run.step_us)

    machine_scales = machine_scales_of([(slower(run, run.run), run) for run in OURS])
    result = scaled(slower(OURS[0], "x/1"), machine_scales)
    assert result is not None
    np.testing.assert_allclose(result.graph.nodes["latency_us"], OURS[0].graph.nodes["latency_us"], rtol=NEAR)
    sums_us = [run.graph.nodes["latency_us"].sum() for run in (OURS[0], slower(OURS[0], "x/1"))]
    assert result.step_us == pytest.approx(OURS[0].step_us * sums_us[0] / sums_us[1], rel=NEAR)


def test_prepared_data_are_in_our_machine_scale(tmp_path: Path) -> None:
    names = tuple("abcdefgh")
    theirs = (*(f"more/{name}" for name in names), "more/x")

    def read_both(name: str) -> RunGraph:
        result = read(name.removeprefix("more/"))
        if name not in theirs:
            return result
        nodes = result.graph.nodes.assign(latency_us=result.graph.nodes["latency_us"] * 2)
        return replace(result, run=name, graph=replace(result.graph, nodes=nodes, fingerprint=name))

    config = DataConfig(cache_dir=str(tmp_path), train_paths=[str(tmp_path / "more")])
    data = prepare(config, Split("run+more", (*names, *theirs), ("i",), ("j",)), read_both)
    assert data.split.train == (*names, "more/x") == tuple(step.run for step in data.steps["train"])
    labels, ours = (
        nodes["latency_us"].to_numpy() for nodes in (data.steps["train"][-1].nodes, typical(read("x")).graph.nodes)
    )
    np.testing.assert_allclose(labels, ours, rtol=NEAR)
    assert data.machine_scales["more/"].num_shared == len(names)


def test_what_is_left_out_is_counted_and_reported() -> None:
    theirs = [there(run, 2.0, f"more/{run.run}") for run in OURS]
    emulated = there(OURS[0], 2.0, "more/new/1")
    nodes = emulated.graph.nodes.assign(dtype="bfloat16")
    emulated = replace(emulated, graph=replace(emulated.graph, nodes=nodes))
    result, machine_scales = in_own_scale([*OURS, *theirs, emulated], ["more/"])
    assert len(result) == len(OURS) and machine_scales["more/"].num_left_out == 1
    sentences = str(machine_scales["more/"])
    assert "takes 2.00 times as long as ours (median node), by 8 shared runs" in sentences
    assert sentences.endswith("; left out, because of unknown speed: 1")
