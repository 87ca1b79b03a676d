"""Copies of an op in, and out again."""

from dataclasses import replace

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from research.evaluation.interventions import step_times_us
from research.evaluation.op_copies import OpSelector, insert_copies
from research.evaluation.repeats import RepeatOp, RunOnce, repeated_calls
from tests.whatif.loops import loop, of
from tests.whatif.test_streams import row

MM = OpSelector("aten::mm")


def test_three_times_adds_two_gaps_and_two_products() -> None:
    result = RepeatOp(MM, 3)(loop())
    assert step_times_us(result.graph) == pytest.approx([101.0, 101.0])  # 63 + 2 * (5 + 14)
    rank1 = of(result.graph, 1, 0, "aten::mm")
    assert rank1["latency_us"].tolist() == [5.0, 14.0] * 3
    assert rank1["node_id"].is_monotonic_increasing
    assert result.touched.sum() == 2 * 2 * 4
    assert result.graph.validate() is result.graph


def test_on_one_rank_slack_takes_a_part() -> None:
    """Rank 0 is 4 us early: 2 * (5 + 10) - 4."""
    result = RepeatOp(OpSelector("aten::mm", ranks=(0,)), 3)(loop())
    assert step_times_us(result.graph) == pytest.approx([89.0, 89.0])
    assert len(of(result.graph, 1, 0, "aten::mm")) == 2


def test_the_inverse_restores_the_schedule() -> None:
    graph = loop()
    back = RunOnce(MM, 4)(RepeatOp(MM, 4)(graph).graph)
    assert step_times_us(back.graph) == pytest.approx([63.0, 63.0])
    columns = ["node_type", "rank", "step", "op_name", "latency_us"]
    assert_frame_equal(back.graph.nodes[columns], graph.nodes[columns])
    assert len(back.graph.edges) == len(graph.edges)


@pytest.mark.parametrize(
    "calls",
    [OpSelector("aten::mn"), OpSelector("aten::mm", input_dims="[[1,1]]"), OpSelector("aten::mm", phase="backward")],
)
def test_a_call_that_is_not_there_is_refused(calls: OpSelector) -> None:
    with pytest.raises(InputError, match=r"no call of aten::m.*aten::bw"):
        RepeatOp(calls, 2)(loop())


def test_neighbors_of_one_op_are_repeated_each() -> None:
    """Two calls in a row: A A' B B', and every second one goes again."""
    twice = RepeatOp(MM, 2)(loop(1)).graph
    marked = twice.nodes["latency_us"].where(twice.nodes["rank"] != 0, 1.0 + np.arange(twice.num_nodes))
    twice = replace(twice, nodes=twice.nodes.assign(latency_us=marked))
    four = RepeatOp(MM, 2)(twice).graph
    assert of(four, 0, 0, "aten::mm")["latency_us"].tolist() == [1, 2, 1, 2, 3, 4, 3, 4]
    assert of(RunOnce(MM, 2)(four).graph, 0, 0, "aten::mm")["latency_us"].tolist() == [1, 2, 3, 4]


def test_copies_may_take_their_latency_from_the_program_that_repeats() -> None:
    """Its copies take 3 + 10 and 3 + 11; its original, which takes 100, is none of our business."""
    reference_run = RepeatOp(MM, 3)(loop()).graph
    place = reference_run.nodes.groupby(["rank", "step", "op_name"], observed=True).cumcount()
    product = (reference_run.nodes["op_name"] == "aten::mm").to_numpy()
    copied = np.array([3, 10, 3, 11, 100, 100])[place.clip(upper=5)]
    latency = np.where(product, copied, reference_run.nodes["latency_us"])
    reference_run = replace(reference_run, nodes=reference_run.nodes.assign(latency_us=latency))
    result = RepeatOp(MM, 3, reference_run)(loop())
    assert of(result.graph, 1, 0, "aten::mm")["latency_us"].tolist() == [3, 10, 3, 11, 5, 14]
    assert step_times_us(result.graph) == pytest.approx([90.0, 90.0])
    assert result.touched.sum() == 2 * 2 * 4


def test_a_copy_waits_for_what_its_original_waits_for() -> None:
    """A copy of op1 stands before it: op1 is number 2, op3 number 4."""
    unit = np.array([-1, 0, -1, -1])
    graph, _, is_copy = insert_copies(row((3, 1), (1, 0)), unit, 1)
    assert np.flatnonzero(is_copy).tolist() == [1]
    assert graph.cross_step is not None
    assert sorted(graph.cross_step.T.tolist()) == [[2, 0], [4, 1], [4, 2]]
    same, _, _ = insert_copies(row((3, 1)), unit, 0)
    assert same.cross_step is not None
    assert same.cross_step.T.tolist() == [[3, 1]]


def launching() -> ExecutionGraph:
    """host |T1 5|T2 10|T4 5|T3 10|sync T1 5 ·waits·|, stream |gemm 100| from the start of T4: 15 + 100 + 5."""
    host = {"node_type": NodeType.HOST, "thread": 0, "op_name": "aten::mm", "input_dims": "[[4,4]]"}
    rows: list[dict[str, object]] = [
        {**host, "segment": Segment.T1, "latency_us": 5.0, "input_dims": None},
        {**host, "segment": Segment.T2, "latency_us": 10.0},
        {**host, "segment": Segment.T4, "latency_us": 5.0, "event_name": "cudaLaunchKernel"},
        {**host, "segment": Segment.T3, "latency_us": 10.0},
        {**host, "segment": Segment.T1, "latency_us": 5.0, "op_name": "cudaDeviceSynchronize", "input_dims": None},
        {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "op_name": "aten::addmm", "latency_us": 100.0},
        {"node_type": NodeType.DEVICE, "device": 0, "step": -1, "op_name": "A100"},
    ]
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(4)]
    edges += [(2, 5, Relation.LAUNCHES), (5, 4, Relation.WAITS), (5, 6, Relation.RUNS_ON)]
    return make_graph(rows, edges, steps=(StepLabel(0, "ProfilerStep#0", None, 120.0, (0.0,), (120.0,)),))


def test_on_a_gpu_the_kernels_are_launched_again() -> None:
    graph = launching()
    assert step_times_us(graph) == pytest.approx([120.0])
    result = RepeatOp(MM, 2)(graph)
    assert step_times_us(result.graph) == pytest.approx([220.0])  # 15 + 2 * 100 + 5: the host runs ahead
    relations = result.graph.edges["relation"].value_counts()
    assert (relations["launches"], relations["runs_on"], relations["follows"], relations["waits"]) == (2, 2, 9, 1)
    assert step_times_us(RunOnce(MM, 2)(result.graph).graph) == pytest.approx([120.0])


CALLS = OpSelector("mm")


def program(*ops: str, ranks: int = 1) -> ExecutionGraph:
    """One step of these ops, 1 us between them, 10 us each; `mm4` is mm with other shapes."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    for rank in range(ranks):
        begin = len(rows)
        for op in ops:
            at: dict[str, object] = {"rank": rank, "thread": 0, "op_name": op.rstrip("4")}
            rows.append({**at, "node_type": NodeType.HOST, "segment": Segment.T1, "latency_us": 1.0})
            rows.append({**at, "node_type": NodeType.COMPUTE, "input_dims": f"[[{op[2:]}]]", "latency_us": 10.0})
        edges += [(n, n + 1, Relation.FOLLOWS) for n in range(begin, len(rows) - 1)]
    label = StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,) * ranks, (0.0,) * ranks)
    return make_graph(rows, edges, ranks=tuple(range(ranks)), steps=(label,))


@pytest.mark.parametrize(
    ("once", "repeated", "times", "here", "there"),
    [
        (("mm", "relu", "mm"), ("mm", "relu", "mm", "mm", "mm"), 3, (1,), (1, 2, 3)),
        (("mm", "mm4"), ("mm", "mm4", "mm4"), 2, (1,), (1, 2)),
        (("mm", "mm", "relu"), ("mm", "mm", "mm", "mm", "relu"), 2, (0, 1), (0, 1, 2, 3)),
        (("mm", "relu", "mm"), ("mm", "mm", "relu", "log", "mm", "mm"), 2, (0, 1), (0, 1, 2, 3)),
    ],
)
def test_by_hand(
    once: tuple[str, ...], repeated: tuple[str, ...], times: int, here: tuple[int, ...], there: tuple[int, ...]
) -> None:
    ((a, b),) = repeated_calls(program(*once), program(*repeated), CALLS, times)
    assert (a.ordinals, b.ordinals) == (here, there)
    assert a.ranks == b.ranks == (0,)


def test_no_time_is_read() -> None:
    """The same prediction when nothing is known of times."""
    graphs = []
    for ops in (("mm", "relu"), ("mm", "mm", "relu")):
        graph = program(*ops)
        graphs.append(replace(graph, nodes=graph.nodes.assign(latency_us=np.nan, start_us=np.nan)))
    assert repeated_calls(graphs[0], graphs[1], CALLS, 2)[0][0].ordinals == (0,)


@pytest.mark.parametrize(("op", "times"), [("relu", 2), ("mm", 3), ("mm", 1)])
def test_what_is_not_repeated_is_refused(op: str, times: int) -> None:
    with pytest.raises(InputError, match=f"no call of {op} that runs {times} times as often"):
        repeated_calls(program("mm", "relu"), program("mm", "mm", "relu"), OpSelector(op), times)
