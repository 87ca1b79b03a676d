"""What another machine measured of the same runs, and its recordings at the speed of our own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import SPLIT, read

from gnnperf.core import WORK_TYPES, InputError
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, in_own_scale, machine_scales_of, prepare, scaled
from gnnperf.gnn.data.runs import IsolatedLabels, Occurrences, RunGraph, RunStep, typical
from gnnperf.gnn.data.source import SourceRuns, source_base_us, source_runs
from gnnperf.gnn.data.splits import Split
from tests.gnn.data.data_sets import write_card

NODES = pd.DataFrame({
    "node_type": ["compute", "compute", "compute", "host", "compute"],
    "segment": [None, None, None, "T1", None],
    "op_name": ["mm", "mm", "add", "add", "mm"],
})  # fmt: skip
ANALYTIC_US = np.array([10.0, 20.0, 5.0, 3.0, 0.0])
MOVED_US = np.array([20.0, np.nan, np.nan, np.nan, 7.0])


def test_the_base_is_measured_else_analytical_times_the_mean_ratio_of_the_op_else_of_the_kind() -> None:
    """The one usable node takes twice its analytical latency."""
    base_us = source_base_us(NODES, ANALYTIC_US, MOVED_US)
    np.testing.assert_allclose(base_us, [20.0, 2 * 20.0, 2 * 5.0, 3.0, 0.0])


def twice(name: str) -> RunGraph:
    """A run of the synthetic data set, recorded there."""
    run = read(name)
    nodes = run.graph.nodes.assign(latency_us=2.0 * run.graph.nodes["latency_us"])
    return replace(run, graph=replace(run.graph, nodes=nodes, fingerprint=f"{run.graph.fingerprint} twice"))


def with_source(cache: Path, recorded: str = "abcde") -> PreparedData:
    """The synthetic data set with that source."""
    source = SourceRuns({name: name for name in recorded}, twice)
    return prepare(DataConfig(cache_dir=str(cache)), SPLIT, read, None, source)


def test_stalls_of_a_step_and_zeros_do_not_count() -> None:
    """1, 2, 3, 100: between 1 and 2; of 0, 4, 8 a quarter from 4 to 8; one step has no third node."""
    steps = Occurrences(typical(read("a")).graph, np.array([[0, 4, 8], [1, 5, -1], [2, 6, -1], [3, 7, -1]]))
    values = np.array([1.0, 100.0, 2.0, 3.0, 0.0, 8.0, 4.0, np.nan, np.nan])
    np.testing.assert_allclose(steps.lower_quartile(values), [1.75, 5.0, np.nan])


@pytest.fixture(scope="module")
def corrected(toy_cache: Path) -> PreparedData:
    return with_source(toy_cache)


def test_the_speed_factors_of_other_runs_leave_little_to_correct(corrected: PreparedData) -> None:
    assert corrected.speed_factors is not None
    labeled = 0
    for step in (*corrected.steps["train"], *corrected.steps["val"]):
        for kind in map(str, WORK_TYPES):
            target = step.data[kind].target.numpy()
            known = np.isfinite(target)
            np.testing.assert_allclose(target[known], 0.0, atol=0.02)  # log(0.5) without factors
            labeled += known.sum()
    assert labeled > 0


def test_a_run_that_the_source_did_not_record_starts_from_the_analytical_model(corrected: PreparedData) -> None:
    step = corrected.steps["test"][0]  # "f"
    store = step.data["compute"]
    np.testing.assert_allclose(store.base_us.numpy(), step.base.latency_us[store.node_id.numpy()])


def test_a_source_without_a_training_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recording of a training run"):
        with_source(tmp_path, recorded="f")


def test_the_first_recording_of_each_run_is_read(tmp_path: Path) -> None:
    for name in ("run/2", "run/1", "other/1"):
        write_card(tmp_path / name, 100.0)
    assert source_runs(tmp_path, tmp_path).recordings == {"run": "run/1", "other": "other/1"}


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
