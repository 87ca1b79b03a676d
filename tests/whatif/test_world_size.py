"""More replicas: what is planned with them, sizes by hand, what cannot be known, what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.transformer.build import build_plan
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.schedule import schedule, timed_edges
from gnnperf.trace import read_run
from gnnperf.whatif import WorldSize, apply
from tests.generate.folding.graphs import Item, Meeting, Work, grid, latencies_us
from tests.generate.transformer.plans import small, step_us
from tests.whatif.programs import recorded, transfers

RUNS = Path("datasets/cpu-gloo")
PLACE = ["collective", "group_size", "group_first", "group_stride", "message_bytes"]


@pytest.mark.parametrize(
    ("now", "then"),
    [((2, 2, 2), (2, 2, 16)), ((1, 1, 8), (1, 1, 1024)), ((4, 2, 4), (4, 2, 64)), ((2, 2, 8), (2, 2, 2))],
)
def test_a_grown_plan_is_the_plan_of_more_replicas(now: tuple[int, int, int], then: tuple[int, int, int]) -> None:
    wanted = build_plan(small(*then))
    result = WorldSize(int(np.prod(then)))(build_plan(small(*now))).graph
    assert (result.ranks, result.stands_for, result.world_size) == (wanted.ranks, wanted.stands_for, wanted.world_size)
    pd.testing.assert_series_equal(transfers(result)[PLACE].value_counts().sort_index(),
                                   transfers(wanted)[PLACE].value_counts().sort_index())  # fmt: skip
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
    assert transfers(result)["group_size"].tolist() == [16_384]


def test_edits_compose_with_it_and_know_where_nodes_came_from() -> None:
    graph = build_plan(small(1, 1, 8))
    done = apply(graph, [WorldSize(64), WorldSize(8)])
    assert done.graph.world_size == 8
    assert step_us(done.graph) == pytest.approx(step_us(graph), rel=1e-12)
    same = graph.nodes["op_name"].astype(str).to_numpy()[done.came_from]
    assert (same == done.graph.nodes["op_name"].astype(str).to_numpy()).all()


def test_sharded_parameters_shrink_with_the_ranks() -> None:
    """Two ranks of FSDP become four: each gathers a quarter in place of a half, and updates half as much."""
    before = recorded("gpt_l2_w128_s64_b4_fsdp_x2_1g/1")
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
    before = recorded("dlrm_t4_r100k_d32_b512_x4_0.25g/1")
    edited = WorldSize(8)(before)
    exchanged = transfers(edited.graph)
    assert set(exchanged["group_size"]) == {8}
    assert set(exchanged["message_bytes"]) == set(transfers(before)["message_bytes"])
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
        (build_plan(small(4, 1, 1)), WorldSize(6, data_parallel=1), "6 ranks are no whole number of replicas"),
        (grid(1, 4, [Work(1.0)]), WorldSize(8, data_parallel=1), "not every rank takes part in an all_reduce"),
        (grid(1, 2, [Work(1.0)]), WorldSize(4), "has no collectives"),
    ],
)  # fmt: skip
def test_what_is_refused(graph: ExecutionGraph, edit: WorldSize, message: str) -> None:
    with pytest.raises(InputError, match=message):
        edit(graph)


@pytest.mark.parametrize(
    ("ranks", "roles", "stands_for"),
    [(6, (0, 1, 2, 3), (2, 2, 1, 1)), (3, (0, 1, 2), (1, 1, 1)), (2, (0, 1), (1, 1)), (8, (0, 1, 2), (4, 2, 2))],
)
def test_ranks_that_differ_by_chance_come_out_uneven(
    ranks: int, roles: tuple[int, ...], stands_for: tuple[int, ...]
) -> None:
    """Rank 1 has one op more than the others, rank 2 another one."""
    more: dict[int, list[Item]] = {1: [Work(2.0)], 2: [Work(3.0)]}
    edited = WorldSize(ranks, data_parallel=4)(grid(1, 4, [Work(1.0), Meeting("all", 2.0)], more))
    graph = edited.graph
    assert (graph.ranks, graph.stands_for, graph.world_size) == (roles, stands_for, ranks)
    assert transfers(graph)["group_size"].tolist() == [ranks]
    assert any("ranks differ" in sentence for sentence in edited.unknown) == (ranks != 8)
    makespan_us = schedule(graph, latencies_us(graph), np.zeros(len(graph.edges))).makespan_us
    assert makespan_us == max(3.0 + 1.0 + 2.0 if 2 in roles else 2.0 + 1.0 + 2.0, 3.0)


@pytest.mark.parametrize(("tensor", "megabytes"), [(4, 1.786), (1, 6.909)])
def test_a_plan_without_replicas_gets_a_data_parallel_dimension(tensor: int, megabytes: float) -> None:
    """The messages are those of the plan with replicas: the gradients are one message more, after the backward."""
    wanted = transfers(build_plan(small(tensor, 1, 8 // tensor)))
    edited = WorldSize(8, data_parallel=1)(build_plan(small(tensor, 1, 1)))
    result = transfers(edited.graph)
    groups = ["collective", "group_size", "group_stride"]
    pd.testing.assert_series_equal(result.groupby(groups, observed=True)["message_bytes"].sum(),
                                   wanted.groupby(groups, observed=True)["message_bytes"].sum())  # fmt: skip
    assert (edited.graph.world_size, edited.graph.stands_for) == (8, (8,))
    assert edited.touched.sum() == 3
    phases = edited.graph.nodes["phase"].astype(str).to_numpy()
    timed = edited.graph.edges["relation"].isin(["waits"]).to_numpy()
    ends = edited.graph.edges.loc[timed, ["src", "dst"]].to_numpy()
    new = np.flatnonzero(edited.touched)
    assert {phases[src] for src, dst in ends if dst in new} == {"backward"}
    assert {phases[dst] for src, dst in ends if src in new} == {"optimizer"}
    assert any(f"one all_reduce of {megabytes} MB per rank" in sentence for sentence in edited.unknown)


def test_a_wait_for_untraced_ranks_hides_no_all_reduce_from_new_replicas() -> None:
    """The same plan as if another rank were missing: its parts wait for peers before the transfer."""
    graph = build_plan(small(4, 1, 1))
    joins = graph.edges.index[graph.edges["relation"] == "joins"]
    parts = graph.edges.loc[joins, "src"].to_numpy()
    waits = graph.nodes.iloc[parts].assign(node_type="host", segment="peer_wait", stream=-1)
    nodes = pd.concat([graph.nodes.astype(object), waits.astype(object)], ignore_index=True)
    nodes = nodes.assign(node_id=np.arange(len(nodes))).astype(graph.nodes.dtypes.drop(["node_type", "segment"]))
    nodes = nodes.astype({"node_type": "category", "segment": "category"})
    new, edges = graph.num_nodes + np.arange(len(parts)), graph.edges.copy()
    edges.loc[joins, "src"] = new
    after = graph.edges.loc[joins].assign(src=parts, dst=new, relation="follows").astype(graph.edges.dtypes)
    hidden = replace(graph, nodes=nodes, edges=pd.concat([edges, after], ignore_index=True).astype(edges.dtypes))
    edited = WorldSize(8, data_parallel=1)(hidden)
    assert edited.touched.sum() == 3


@pytest.mark.mirror
def test_public_tensor_parallel_run_as_several_replicas(mirror: Path) -> None:
    folder = mirror / "NVIDIA+Megatron-LM/tp2"
    run = read_run([*sorted(folder.glob("result/*/*.json.gz")), *sorted(folder.glob("pytorch_et_*.json.gz"))])
    graph = build_graph(run)
    one = graph.step(graph.steps[0].step).for_predictors()
    edited = WorldSize(16, data_parallel=1)(one)
    added = transfers(edited.graph)[edited.touched[-2:].sum() * -1 :]
    assert added[["group_size", "group_stride"]].to_numpy().tolist() == [[8, 2], [8, 2]]
    assert set(added["message_bytes"]) == {4.0 * 3948}
    assert len(timed_edges(edited.graph).order) == edited.graph.num_nodes


def test_no_ranks_are_no_world() -> None:
    with pytest.raises(InputError, match="ranks of a world size"):
        WorldSize(0)
