"""Another machine's recordings in the pace of our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import read

from gnnperf.gnn.data import paces as module
from gnnperf.gnn.data.paces import Paces, in_our_pace, paced, paces_of
from gnnperf.gnn.data.prepare import DataConfig, prepare
from gnnperf.gnn.data.runs import AloneLabels, RunGraph, RunStep, typical
from gnnperf.gnn.data.splits import Split

OURS = tuple(replace(typical(read(name)), run=f"{name}/1") for name in "abcdefgh")
ENOUGH = 7  # every kind of node is in each of the runs
COMPUTE, GEMM = ("compute float32",), ("compute float32", "gemm")


@pytest.fixture(autouse=True, scope="module")
def few_nodes_are_enough() -> Iterator[None]:
    """A toy has four ops, not thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_NODES", ENOUGH)
        yield


def there(run: RunStep, factor: float, name: str) -> RunStep:
    """The run on a machine that takes `factor` times as long for everything."""
    nodes = run.graph.nodes.assign(latency_us=run.graph.nodes["latency_us"] * factor)
    alone = AloneLabels(run.alone.usual_us * factor, run.alone.steady_us * factor, run.alone.stretch)
    return replace(run, run=name, graph=replace(run.graph, nodes=nodes), step_us=run.step_us * factor, alone=alone)


def pairs(factor: float) -> list[tuple[RunStep, RunStep]]:
    """Runs that both machines recorded."""
    return [(there(run, factor, run.run), run) for run in OURS]


@pytest.fixture(scope="module")
def twice() -> Paces:
    """Of a machine that takes twice as long."""
    return paces_of(pairs(2.0))


def test_a_machine_that_takes_twice_as_long(twice: Paces) -> None:
    assert twice.of_kind[COMPUTE] == twice.of_kind[GEMM] == pytest.approx(2.0)
    assert all(ratio == pytest.approx(2.0) for key, ratio in twice.of_kind.items() if key[0] != "comm arrive")


@pytest.mark.parametrize("factor", [0.3, 1.0, 7.0])
def test_what_it_recorded_comes_back_as_ours(factor: float) -> None:
    found = paced(there(OURS[0], factor, "x/1"), paces_of(pairs(factor)))
    assert found is not None
    told, ours = (run.graph.nodes["latency_us"].to_numpy(np.float64) for run in (found, OURS[0]))
    known = np.isfinite(ours)
    np.testing.assert_allclose(told[known], ours[known], rtol=1e-9)
    np.testing.assert_allclose(found.alone.usual_us[known], OURS[0].alone.usual_us[known], rtol=1e-9)
    np.testing.assert_allclose(found.alone.steady_us[known], OURS[0].alone.steady_us[known], rtol=1e-9)
    np.testing.assert_array_equal(found.alone.stretch, OURS[0].alone.stretch)
    assert found.step_us == pytest.approx(OURS[0].step_us)
    assert found.graph.edges["lag_us"].isna().all()


def test_the_finest_that_is_told_counts() -> None:
    nodes = pd.DataFrame({
        "node_type": ["compute", "compute", "compute", "host"], "segment": [None, None, None, "T1"],
        "dtype": ["float32", "float32", "bfloat16", None], "family": ["gemm", "norm", "gemm", None],
    })  # fmt: skip
    paces = Paces({GEMM: 3.0, COMPUTE: 2.0, ("host T1",): 1.5})
    np.testing.assert_array_equal(paces.of(nodes), [3.0, 2.0, np.nan, 1.5])


def test_a_kind_that_few_nodes_tell_has_no_pace() -> None:
    assert paces_of(pairs(2.0)[:1]).of_kind == {}


def test_a_recording_that_is_mostly_of_no_known_pace_is_left_out(twice: Paces) -> None:
    known = Paces({key: ratio for key, ratio in twice.of_kind.items() if not key[0].startswith("compute")})
    assert paced(there(OURS[0], 2.0, "x/1"), known) is None
    assert paced(there(OURS[0], 2.0, "x/1"), Paces({})) is None


def test_shared_runs_tell_the_pace_and_are_left_out() -> None:
    theirs = [there(run, 2.0, f"more/{run.run}") for run in OURS]
    new = there(OURS[0], 2.0, "more/new/1")
    found, paces = in_our_pace([*OURS, *theirs, new], ["more/"])
    assert {run.run for run in found} == {*(run.run for run in OURS), "more/new/1"}
    assert found[-1].step_us == pytest.approx(OURS[0].step_us)
    assert paces["more/"].of_kind[COMPUTE] == pytest.approx(2.0)
    assert (paces["more/"].num_shared, paces["more/"].num_left_out) == (len(OURS), 0)


def test_a_data_set_that_shares_no_run_is_taken_as_it_is() -> None:
    other = there(OURS[1], 2.0, "more/new/1")
    found, paces = in_our_pace([OURS[0], other], ["more/"])
    assert found == [OURS[0], other]
    assert "shares no run with ours" in str(paces["more/"])


def test_kinds_have_paces_of_their_own() -> None:
    """Compute takes three times as long there, all else as long as here: the step does not take three times as long."""

    def slower(run: RunStep, name: str) -> RunStep:
        is_compute = (run.graph.nodes["node_type"] == "compute").to_numpy()
        factor = np.where(is_compute, 3.0, 1.0)  # [num_nodes]
        nodes = run.graph.nodes.assign(latency_us=run.graph.nodes["latency_us"] * factor)
        return replace(there(run, 1.0, name), graph=replace(run.graph, nodes=nodes))

    paces = paces_of([(slower(run, run.run), run) for run in OURS])
    assert paces.of_kind[COMPUTE] == pytest.approx(3.0) and paces.of_kind["host T1",] == pytest.approx(1.0)
    found = paced(slower(OURS[0], "x/1"), paces)
    assert found is not None
    np.testing.assert_allclose(found.graph.nodes["latency_us"], OURS[0].graph.nodes["latency_us"], rtol=1e-9)
    sums_us = [run.graph.nodes["latency_us"].sum() for run in (OURS[0], slower(OURS[0], "x/1"))]
    assert found.step_us == pytest.approx(OURS[0].step_us * sums_us[0] / sums_us[1])


def test_prepared_data_are_in_our_pace(tmp_path: Path) -> None:
    names = tuple("abcdefgh")
    theirs = (*(f"more/{name}" for name in names), "more/x")

    def read_both(name: str) -> RunGraph:
        found = read(name.removeprefix("more/"))
        if name not in theirs:
            return found
        nodes = found.graph.nodes.assign(latency_us=found.graph.nodes["latency_us"] * 2)
        return replace(found, run=name, graph=replace(found.graph, nodes=nodes, fingerprint=name))

    config = DataConfig(cache_dir=str(tmp_path), train_paths=[str(tmp_path / "more")])
    data = prepare(config, Split("run+more", (*names, *theirs), ("i",), ("j",)), read_both)
    assert data.split.train == (*names, "more/x") == tuple(step.run for step in data.steps["train"])
    labels, ours = (
        nodes["latency_us"].to_numpy() for nodes in (data.steps["train"][-1].nodes, typical(read("x")).graph.nodes)
    )
    np.testing.assert_allclose(labels, ours, rtol=1e-9)
    assert data.paces["more/"].num_shared == len(names)


def test_what_is_left_out_is_counted_and_told() -> None:
    theirs = [there(run, 2.0, f"more/{run.run}") for run in OURS]
    emulated = there(OURS[0], 2.0, "more/new/1")
    nodes = emulated.graph.nodes.assign(dtype="bfloat16")
    emulated = replace(emulated, graph=replace(emulated.graph, nodes=nodes))
    found, paces = in_our_pace([*OURS, *theirs, emulated], ["more/"])
    assert len(found) == len(OURS) and paces["more/"].num_left_out == 1
    said = str(paces["more/"])
    assert "compute float32 2.00, host T1 2.00" in said and "as 8 shared runs say" in said
    assert said.endswith("; left out, because of no known pace: 1")
