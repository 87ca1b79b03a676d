"""What another machine measured of the same runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import SPLIT, read

from gnnperf.core import WORK_TYPES, InputError
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, prepare
from gnnperf.gnn.data.runs import Occurrences, RunGraph, typical
from gnnperf.gnn.data.source import SourceRuns, source_base_us, source_runs
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


# A source on which everything takes twice as long.


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
