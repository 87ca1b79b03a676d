"""The plan of random programs that are trained on next to other data sets."""

from __future__ import annotations

from collections import Counter

from research.recording.cpu_gloo import cpu_gloo
from research.recording.cpu_random import SEEDS, cpu_random, drawn_run
from research.recording.workloads.random_graph import RandomGraph, compose


def test_all_it_adds_are_random_programs_of_other_seeds() -> None:
    plan, other = cpu_random(), cpu_gloo()
    known = {run.name for run in other.runs}
    new = [run.workload for run in plan.runs if run.name not in known]
    assert len({run.name for run in plan.runs}) == len(plan.runs) == 181
    assert all(isinstance(workload, RandomGraph) for workload in new)
    seeds = [run.workload.seed for run in other.runs if isinstance(run.workload, RandomGraph)]
    assert max(seeds) < min(SEEDS) and len(new) == len(SEEDS)


def test_runs_that_are_shared_are_of_every_program_and_in_no_part() -> None:
    plan, known = cpu_random(), {run.name for run in cpu_gloo().runs}
    shared = {run.name: run.workload.kind for run in plan.runs if run.name in known}
    assert set(shared.values()) == {"dlrm", "transformer", "cnn", "rl", "random_graph"} and len(shared) == 21
    (split,) = plan.splits.values()
    assert not set(shared) & set(split["train"]) and not split["val"] and not split["test"]


def test_a_seed_draws_one_run_whatever_else_is_drawn() -> None:
    runs = [drawn_run(seed) for seed in SEEDS]
    assert runs[::-1] == [drawn_run(seed) for seed in reversed(SEEDS)]
    assert Counter(run.world_size for run in runs) == {2: 121, 1: 39}
    assert {run.link.name for run in runs} == {"lo", "1g", "5g"}
    assert {run.workload.image for run in runs if isinstance(run.workload, RandomGraph)} == {12, 16, 24, 32}


def test_its_ops_are_larger_than_those_of_the_other_data_set() -> None:
    """What long ops take that the analytical prediction does not know, only long ops tell."""

    def works(workloads: list[RandomGraph]) -> list[float]:
        return sorted(node.op.work for workload in workloads for node in compose(workload))

    ours = works([run.workload for run in map(drawn_run, SEEDS) if isinstance(run.workload, RandomGraph)])
    theirs = works([run.workload for run in cpu_gloo().runs if isinstance(run.workload, RandomGraph)])
    assert ours[-1] > 2 * theirs[-1]
