"""More replicas: what is planned with them, sizes by hand, what cannot be known, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.transformer.build import build_plan
from gnnperf.graph import load_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif.edit import apply
from gnnperf.whatif.world_size import WorldSize
from tests.generate.folding.graphs import Meeting, Work, grid
from tests.generate.transformer.plans import small, step_us

RUNS = Path("datasets/cpu-gloo")
PLACE = ["collective", "group_size", "group_first", "group_stride", "message_bytes"]


def _transfers(graph: ExecutionGraph) -> pd.DataFrame:
    return graph.nodes[(graph.nodes["node_type"] == "collective").to_numpy()]


def _recorded(run: str) -> ExecutionGraph:
    return load_graph(RUNS / run).step(1).for_predictors()


@pytest.mark.parametrize(
    ("now", "then"),
    [((2, 2, 2), (2, 2, 16)), ((1, 1, 8), (1, 1, 1024)), ((4, 2, 4), (4, 2, 64)), ((2, 2, 8), (2, 2, 2))],
)
def test_a_grown_plan_is_the_plan_of_more_replicas(now: tuple[int, int, int], then: tuple[int, int, int]) -> None:
    wanted = build_plan(small(*then))
    result = WorldSize(int(np.prod(then)))(build_plan(small(*now))).graph
    assert (result.ranks, result.stands_for, result.world_size) == (wanted.ranks, wanted.stands_for, wanted.world_size)
    pd.testing.assert_series_equal(_transfers(result)[PLACE].value_counts().sort_index(),
                                   _transfers(wanted)[PLACE].value_counts().sort_index())  # fmt: skip
    assert step_us(result) == pytest.approx(step_us(wanted), rel=1e-12)


def test_as_many_ranks_as_before_change_nothing() -> None:
    graph = build_plan(small(2, 2, 2))
    edited = WorldSize(8)(graph)
    assert edited.graph is graph
    assert not edited.touched.any()


def test_sixteen_thousand_ranks_need_no_more_nodes_than_one() -> None:
    graph = grid(1, 8, [Work(5.0), Meeting("all", 3.0)])
    result = WorldSize(16_384, data_parallel=8)(graph).graph
    assert (result.num_nodes, result.stands_for, result.world_size) == (6, (16_384,), 16_384)
    assert _transfers(result)["group_size"].tolist() == [16_384]
    assert [w for w in result.warnings if "same role" in w] == [
        "Ranks with the same role are in the graph once: 1 ranks, each for 16384."
    ]


def test_edits_compose_with_it_and_know_where_nodes_came_from() -> None:
    graph = build_plan(small(1, 1, 8))
    done = apply(graph, [WorldSize(64), WorldSize(8)])
    assert done.graph.world_size == 8
    assert step_us(done.graph) == pytest.approx(step_us(graph), rel=1e-12)
    same = graph.nodes["op_name"].astype(str).to_numpy()[done.came_from]
    assert (same == done.graph.nodes["op_name"].astype(str).to_numpy()).all()


def test_sharded_parameters_shrink_with_the_ranks() -> None:
    """Two ranks of FSDP become four: each gathers a quarter in place of a half, and updates half as much."""
    before = _recorded("gpt_l2_w128_s64_b4_fsdp_x2_1g/1")
    edited = WorldSize(4)(before)
    origin = before.nodes.iloc[edited.came_from].reset_index(drop=True)
    now = edited.graph.nodes
    gathers, sums = (((now["collective"] == kind) & (now["node_type"] == "collective")).to_numpy()
                     for kind in ("all_gather", "all_reduce"))  # fmt: skip
    assert (now["message_bytes"][gathers] == origin["message_bytes"][gathers] / 2).all()
    assert (now["message_bytes"][sums] == origin["message_bytes"][sums]).all()
    updates = ((now["phase"] == "optimizer") & (now["node_type"] == "compute") & (now["flops"] > 0)).to_numpy()
    np.testing.assert_allclose(now["flops"][updates], origin["flops"][updates] / 2)
    forward = ((now["op_name"] == "aten::addmm") & (now["node_type"] == "compute")).to_numpy()
    assert (now["flops"][forward] == origin["flops"][forward]).all()
    assert edited.graph.placement is not None and edited.graph.placement.hosts == 4
    assert any("padded" in sentence for sentence in edited.unknown)


def test_exchanges_of_tables_keep_what_a_rank_sends() -> None:
    before = _recorded("dlrm_t4_r100k_d32_b512_x4_0.25g/1")
    edited = WorldSize(8)(before)
    exchanged = _transfers(edited.graph)
    assert set(exchanged["group_size"]) == {8}
    assert set(exchanged["message_bytes"]) == set(_transfers(before)["message_bytes"])
    assert any("tables" in sentence for sentence in edited.unknown)


def test_messages_whose_size_is_unknown_are_named() -> None:
    graph = grid(1, 4, [Work(5.0), Meeting("all", 3.0)])
    nodes = graph.nodes.assign(message_bytes=np.nan)
    result = WorldSize(8, data_parallel=4)(ExecutionGraph(**{**graph.__dict__, "nodes": nodes}))
    assert any("how many bytes 1 messages" in sentence for sentence in result.unknown)


@pytest.mark.parametrize(
    ("graph", "edit", "message"),
    [
        (build_plan(small(2, 2, 2)), WorldSize(6), "6 ranks are no whole number of replicas.*multiple of 4"),
        (build_plan(small(4, 1, 1)), WorldSize(8), "which groups are data-parallel is not clear"),
        (build_plan(small(2, 2, 2)), WorldSize(16, data_parallel=3), "no group of 3 ranks.*data_parallel: one of 2"),
        (grid(1, 4, [Work(1.0), Meeting("all", 1.0)], {2: [Work(2.0)]}), WorldSize(6, data_parallel=4),
         "6 ranks, but 2 of 4 have a role of their own"),
        (grid(1, 2, [Work(1.0)]), WorldSize(4), "has no collectives"),
    ],
)  # fmt: skip
def test_what_is_refused(graph: ExecutionGraph, edit: WorldSize, message: str) -> None:
    with pytest.raises(InputError, match=message):
        edit(graph)


def test_no_ranks_are_no_world() -> None:
    with pytest.raises(InputError, match="ranks of a world size"):
        WorldSize(0)
