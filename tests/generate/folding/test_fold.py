"""Folded equals whole: by hand, on random programs of grids of ranks, on planned and recorded graphs."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.folding.fold import Folded, fold
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import Pipeline, Reduction, TransformerPlan
from gnnperf.graph import ExecutionGraph, Isolated, load_graph
from gnnperf.hardware import Contention, load_device
from gnnperf.predict.target import choose_target
from gnnperf.schedule import Schedule, schedule_with_contention
from tests.generate.folding.graphs import Item, Meeting, Work, grid, latencies_us
from tests.generate.transformer.plans import every_rank, small

TICK_US = 1e-6
RUNS = Path("datasets/cpu-gloo")
EIGHT_GPUS = "facebookresearch+param/et_replay/tests/inputs/dlrm_kineto.tar.gz"

works = st.builds(Work, st.integers(1, 20).map(float))
meetings = st.builds(Meeting, st.sampled_from(["row", "column", "all", "ring"]), st.integers(1, 9).map(float),
                     st.booleans())  # fmt: skip
programs = st.lists(works | meetings, min_size=1, max_size=8)


def _without_rings(program: list[Item]) -> list[Item]:
    """The last message of a ring goes further than the others: roles."""
    return [Work(1.0), *(item for item in program if not (isinstance(item, Meeting) and item.group == "ring"))]


def _drawn(graph: ExecutionGraph) -> Schedule:
    """With links that overlapping transfers share, two ranks on a machine."""
    shared = Contention(ranks_per_node=2, ranks_per_inner_link=1, ranks_per_outer_link=1)
    isolated = Isolated(np.ones(graph.num_nodes, dtype=bool), shared)
    latency_us, lag_us = latencies_us(graph), np.zeros(len(graph.edges))
    return schedule_with_contention(graph, latency_us, lag_us, isolated, num_unrolled=2).schedule


def _predicted(graph: ExecutionGraph) -> Schedule:
    cluster = choose_target(graph, load_device("a100_sxm_80gb") if graph.runs_on_gpu else None, None).cluster
    values = AnalyticPredictor().predict(graph, cluster)
    assert values.isolated is not None
    latency_us = np.nan_to_num(values.latency_us)
    return schedule_with_contention(graph, latency_us, values.lag_us, values.isolated, num_unrolled=2).schedule


def _same(whole: Schedule, small: Schedule, folded: Folded) -> None:
    """Every node starts when its stand-in does, and may be as late; so do steps, and so is what is critical."""
    assert small.makespan_us == pytest.approx(whole.makespan_us, abs=TICK_US)
    assert small.period_us == pytest.approx(whole.period_us, abs=TICK_US)
    np.testing.assert_allclose(small.start_us[folded.node], whole.start_us, atol=TICK_US)
    np.testing.assert_allclose(small.slack_us[folded.node], whole.slack_us, atol=TICK_US)


def test_equal_ranks_become_one_and_groups_stay_as_large() -> None:
    folded = fold(grid(2, 3, [Work(5.0), Meeting("row", 3.0), Work(2.0), Meeting("all", 4.0), Work(1.0)]))
    (only,) = folded.classes
    assert (only.ranks, folded.graph.ranks, folded.graph.stands_for) == (tuple(range(6)), (0,), (6,))
    sizes = folded.graph.nodes["group_size"].to_numpy()
    assert sorted(sizes[sizes > 0].tolist()) == [3, 6]
    assert folded.graph.num_nodes == 5 + 3 + 2 * 2 + 2  # launches, kernels, parts, transfers
    assert _drawn(folded.graph).period_us == 5.0 + 3 + 2 + 4 + 1


def test_a_rank_with_more_work_and_those_that_wait_for_it_are_retained_apart() -> None:
    """Rank 1 has an op more; rank 0 shares its row, ranks 2 and 3 meet neither before the end."""
    folded = fold(grid(2, 2, [Work(5.0), Meeting("row", 3.0), Meeting("all", 4.0)], {1: [Work(7.0)]}))
    by_rank = {each.rank: each for each in folded.classes}
    assert {rank: each.ranks for rank, each in by_rank.items()} == {0: (0,), 1: (1,), 2: (2, 3)}
    assert "op" in by_rank[1].why or "nodes" in by_rank[1].why
    assert by_rank[2].why == "does the same as rank 0, but meets other ranks"


@settings(max_examples=20)
@given(rows=st.integers(1, 3), columns=st.integers(2, 4), program=programs, extra=st.lists(works, max_size=1),
       rank=st.integers(0, 11))  # fmt: skip
def test_random_programs(rows: int, columns: int, program: list[Item], extra: list[Item], rank: int) -> None:
    whole = grid(rows, columns, program, {rank % (rows * columns): list(extra)})
    folded = fold(whole, ranks_per_node=2)
    assert sum(folded.graph.stands_for) == whole.world_size
    _same(_drawn(whole), _drawn(folded.graph), folded)
    again = fold(folded.graph, ranks_per_node=2)
    assert (again.graph.num_nodes, again.graph.stands_for) == (folded.graph.num_nodes, folded.graph.stands_for)


@given(rows=st.integers(1, 3), columns=st.integers(2, 4), program=programs.map(_without_rings))
def test_a_program_without_roles_needs_one_rank(rows: int, columns: int, program: list[Item]) -> None:
    assert fold(grid(rows, columns, program)).graph.stands_for == (rows * columns,)


@pytest.mark.parametrize(
    "plan",
    [
        small(2, 2, 2, order=Pipeline.INTERLEAVED, chunks=2),
        small(2, 2, 4, reduction=Reduction.BUCKETS, bucket_bytes=1.0),
    ],
)
def test_a_whole_plan_folds_to_what_is_built_of_one_rank_per_stage(plan: TransformerPlan) -> None:
    whole, reduced = build_plan(plan, every_rank(plan.parallelism)), build_plan(plan)
    folded = fold(whole)
    assert (folded.graph.ranks, folded.graph.stands_for) == (reduced.ranks, reduced.stands_for)
    assert folded.graph.num_nodes == reduced.num_nodes
    expected = _predicted(whole)
    _same(expected, _predicted(folded.graph), folded)
    assert _predicted(reduced).makespan_us == pytest.approx(expected.makespan_us, abs=TICK_US)


def test_recorded_ranks_of_one_role_fold() -> None:
    step = load_graph(RUNS / "gpt_l2_w128_s64_b4_fsdp_x2_1g/1").step(1).for_predictors()
    folded = fold(step)
    assert [each.ranks for each in folded.classes] == [(0, 1)]
    assert folded.graph.num_nodes < 0.6 * step.num_nodes
    _same(_predicted(step), _predicted(folded.graph), folded)


def test_recorded_ranks_that_share_cores_stay() -> None:
    """Two hosts of two ranks, but all of them namespaces on two cores."""
    folded = fold(load_graph(RUNS / "gpt_l1_w128_s64_b2_x4_0.25g/1").step(1).for_predictors())
    assert [each.ranks for each in folded.classes] == [(0,), (1,), (2,), (3,)]
    assert "share the cores" in folded.classes[1].why


@pytest.mark.mirror
def test_eight_recorded_gpus_of_eight_roles(mirror: Path) -> None:
    """Their tables differ, and so do their ranks: nothing folds, and what they are is stated."""
    step = load_graph(mirror / EIGHT_GPUS).step(0).for_predictors()
    folded = fold(step)
    assert folded.graph.stands_for == (1,) * 8
    assert all("rank 0 has" in each.why for each in folded.classes[1:])
    _same(_predicted(step), _predicted(folded.graph), folded)


def test_groups_over_unequal_numbers_of_machines_keep_their_ranks_apart() -> None:
    """Rows of three on machines of two: 0-2 spans two machines, 3-5 as well, 6-8 again; of four, row 0-2 spans one."""
    graph = grid(3, 3, [Work(1.0), Meeting("row", 1.0)])
    assert len(fold(graph, ranks_per_node=2).classes) == 1
    assert [each.ranks for each in fold(graph, ranks_per_node=4).classes] == [(0, 1, 2), (3, 4, 5, 6, 7, 8)]
