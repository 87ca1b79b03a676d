"""The plan of runs that are recorded again."""

from __future__ import annotations

from gnnperf.record.cpu_again import cpu_again
from gnnperf.record.cpu_gloo import cpu_gloo


def test_it_holds_what_the_axis_run_does_not_train_on() -> None:
    plan, first = cpu_again(), cpu_gloo().splits["run"]
    names = {run.name for run in plan.runs}
    assert names == {*first["val"], *first["test"]}
    assert not names & set(first["train"])
    assert plan.splits["again"] == {"train": [], "val": tuple(first["val"]), "test": tuple(first["test"])}


def test_runs_are_those_of_the_first_plan() -> None:
    first = {run.name: run for run in cpu_gloo().runs}
    assert all(first[run.name] == run for run in cpu_again().runs)
    assert cpu_again().steps == cpu_gloo().steps


def test_every_program_and_every_link_is_there() -> None:
    runs = cpu_again().runs
    assert {run.workload.kind for run in runs} == {run.workload.kind for run in cpu_gloo().runs}
    assert {run.link.name for run in runs} == {"lo", "0.25g", "1g", "5g"}
    assert {run.world_size for run in runs} == {1, 2, 4}
