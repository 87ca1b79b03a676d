"""Waiting for a collective where it is issued, or later."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from gnnperf.core import Evidence, InputError, NodeType, Relation, Segment
from gnnperf.graph import EdgeList, ExecutionGraph, StepLabel, concat_tables
from gnnperf.schedule import timed_edges
from gnnperf.trace.public.catalog import load_catalog
from gnnperf.whatif import Block, WaitLater, apply
from research.benchmarks._public_runs import imported, recordings
from research.evaluation.interventions import step_times_us
from tests.toys import make_graph
from tests.whatif.loops import EXIT, ISSUE, OPT, loop


def test_the_gap_after_the_issue_waits() -> None:
    """Transfer until 54, then 2 + 20 + 3 + 5 + 1."""
    result = Block("all_reduce")(loop())
    assert step_times_us(result.graph) == pytest.approx([85.0, 85.0])
    assert len(result.graph.edges) == len(loop().edges)
    assert "at the same time" in result.unknown[0]
    twice = apply(loop(), [Block(), Block()])
    assert step_times_us(twice.graph) == pytest.approx([85.0, 85.0])
    assert twice.touched.tolist() == result.touched.tolist()


@pytest.mark.parametrize("transfer_us", [0.0, 10.0, 22.0, 100.0])
def test_a_step_is_never_shorter_for_waiting_earlier(transfer_us: float) -> None:
    graph = loop(transfer_us=transfer_us)
    before = graph.edges.copy()
    assert (step_times_us(Block()(graph).graph) >= step_times_us(graph) - 1e-9).all()
    assert_frame_equal(graph.edges, before)  # the input stays as it was


def test_parts_that_no_one_issued_stay_and_are_stated() -> None:
    graph = loop(1)
    edges = graph.edges[graph.edges["relation"] != "launches"].reset_index(drop=True)
    result = Block()(replace(graph, edges=edges))
    assert_frame_equal(result.graph.edges, edges)
    assert result.unknown[1].startswith("who issued 2 of 2 parts")


def shaped(graph: ExecutionGraph, shapes: dict[int, str]) -> ExecutionGraph:
    """The loop with shapes of these nodes of every rank and step."""
    dims = graph.nodes["input_dims"].astype(object).to_numpy(copy=True)
    for base in (0, 11, 23, 34):  # two ranks, then the transfer; two steps
        for node, text in shapes.items():
            dims[base + node] = text
    return replace(graph, nodes=graph.nodes.assign(input_dims=pd.Categorical(dims)))


TAKEN = {ISSUE: "[[[16]]]", OPT: "[[16],[16]]"}


def test_by_shape_undoes_waiting_at_the_issue() -> None:
    graph = shaped(loop(), TAKEN)
    blocked = Block()(graph).graph
    assert step_times_us(blocked) == pytest.approx([85.0, 85.0])
    result = WaitLater()(blocked)
    waits = [
        {tuple(pair) for pair in g.edges.loc[g.edges["relation"] == Relation.WAITS, ["src", "dst"]].to_numpy()}
        for g in (graph, result.graph)
    ]
    assert waits[0] == waits[1]
    assert apply(graph, [Block(), WaitLater()]).touched[EXIT]
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert any("results of 4 parts: no tensor is followed (no feeds edges)" in s for s in result.unknown)


def test_by_feeds() -> None:
    """Nothing has the message's shape; the edge states who takes it."""
    blocked = Block()(shaped(loop(), {ISSUE: "[[[16]]]"})).graph
    with pytest.raises(InputError, match=r"no call takes a result.*until=optimizer"):
        WaitLater("all_reduce")(blocked)
    feeds = EdgeList()
    base = np.array([0, 11, 23, 34])
    feeds.add(base + ISSUE, base + OPT, Relation.FEEDS, evidence=Evidence.ID)
    followed = replace(blocked, edges=concat_tables([blocked.edges, feeds.table()]))
    result = WaitLater("all_reduce")(followed)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert not any("no tensor is followed" in sentence for sentence in result.unknown)


def test_at_a_place_that_is_reported() -> None:
    blocked = Block()(loop()).graph
    result = WaitLater(until="optimizer")(blocked)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert "whether results are needed earlier than at optimizer: the edit states it" in result.unknown


def test_what_waits_there_already_stays() -> None:
    with pytest.raises(InputError, match="needed where it is waited for"):
        WaitLater(until="optimizer")(loop())


def test_refusals() -> None:
    for edit in (Block, WaitLater):
        with pytest.raises(InputError, match=r"no broadcast.*all_reduce"):
            edit("broadcast")(loop())
    with pytest.raises(InputError, match="no all_reduce in backward"):
        Block("all_reduce", "backward")(loop())
    with pytest.raises(InputError, match="start, backward, optimizer"):
        WaitLater(until="end")


K0, K1, K2, ARRIVES, LEAVES, SYNC = 4, 5, 6, 8, 9, 7


def on_streams(*takers: int) -> ExecutionGraph:
    """Launches of no time; kernels of 10, 40 and 5 us, an all-reduce of 30 us after the first; stream 0 waits at once.

    `takers`: calls (their launches) that take its result.
    """
    launch = {"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T4, "latency_us": 0.0, "op_name": "aten::x"}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "op_name": "aten::x"}
    comm = {"node_type": NodeType.COMM, "stream": 1, "collective": "all_reduce", "latency_us": 0.0}
    rows = [launch, {**launch, "op_name": "c10d::allreduce_"}, {**launch, "segment": Segment.T1},
            {**launch, "segment": Segment.T1}, *({**kernel, "latency_us": us} for us in (10.0, 40.0, 5.0)),
            {**launch, "segment": Segment.T1}, {**comm, "segment": Segment.ARRIVE}, {**comm, "segment": Segment.EXIT},
            {"rank": -1, "node_type": NodeType.COLLECTIVE, "collective": "all_reduce", "latency_us": 30.0}]  # fmt: skip
    edges = [(0, 1, Relation.FOLLOWS), (1, 2, Relation.FOLLOWS), (2, 3, Relation.FOLLOWS), (3, SYNC, Relation.FOLLOWS),
             (0, K0, Relation.LAUNCHES), (1, ARRIVES, Relation.LAUNCHES), (2, K1, Relation.LAUNCHES),
             (3, K2, Relation.LAUNCHES), (K0, K1, Relation.FOLLOWS), (K1, K2, Relation.FOLLOWS),
             (K0, ARRIVES, Relation.WAITS), (ARRIVES, 10, Relation.JOINS), (10, LEAVES, Relation.RELEASES),
             (LEAVES, K1, Relation.WAITS), (K2, SYNC, Relation.WAITS)]  # fmt: skip
    return make_graph(rows, edges + [(LEAVES, taker, Relation.FEEDS) for taker in takers],
                      steps=(StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,), (0.0,)),))  # fmt: skip


def test_a_stream_waits_before_the_kernel_that_takes_the_result_and_the_host_does_not() -> None:
    """10 + 30 + 40 + 5; next to the second kernel the transfer is hidden: 10 + 40 + 5."""
    graph = on_streams(3)
    assert step_times_us(graph) == pytest.approx([85.0])
    result = WaitLater()(graph)
    assert step_times_us(result.graph) == pytest.approx([55.0])
    waits = result.graph.edges.loc[result.graph.edges["relation"] == Relation.WAITS, ["src", "dst"]]
    assert sorted(map(tuple, waits.to_numpy())) == [(K0, ARRIVES), (K2, SYNC), (LEAVES, K2)]


@pytest.mark.parametrize("takers", [(0,), (1,), (2,), (2, 3)])
def test_a_result_that_is_needed_at_once_or_before_closes_no_cycle(takers: tuple[int, ...]) -> None:
    """Taken by the next call; or, as ids of tensors that are changed in place say, by the call itself or one before."""
    with pytest.raises(InputError, match="needed where it is waited for"):
        WaitLater()(on_streams(*takers))


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("run", "until"), [("megatron-tp2", None), ("dlrm-8", None), ("tracelens-mi300-resnet_act_checkpoint", "optimizer")]
)
def test_overlap_on_public_runs_closes_no_cycle(mirror: Path, run: str, until: str | None) -> None:
    """Before, 3,587 to 10,278 nodes of these runs waited for each other."""
    graph = imported(next(one for one in recordings(load_catalog()) if one.name == run))[1]
    one = graph.step(graph.steps[-1].step).for_predictors()
    try:
        edited = WaitLater(until=until)(one).graph
    except InputError as error:
        assert "needed where it is waited for" in error.what or "has no place" in error.what
        return
    assert len(timed_edges(edited).order) == edited.num_nodes
