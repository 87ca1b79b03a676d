"""Pauses, copies of an op in and out again, and latencies from a recording of the changed program."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from toys import make_graph

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.whatif import Block, Edit, Place, apply
from research.evaluation.interventions import step_times_us
from research.evaluation.op_copies import OpSelector, insert_copies
from research.evaluation.pairs import Pause
from research.evaluation.reference_run import LatenciesOf, WaitAs, changed_inputs, transfers
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


def test_another_link_changes_transfers_only() -> None:
    """The donor's products are slower too, and that is not taken."""
    reference_run = loop(mm_us=(100.0, 100.0), transfer_us=50.0)
    result = LatenciesOf(reference_run, transfers)(loop())
    assert step_times_us(result.graph) == pytest.approx([83.0, 83.0])
    assert result.touched.sum() == 2 * 3  # transfer and two exits per step
    assert not result.unknown


def test_other_shapes_take_the_donors_latency_and_nothing_else_does() -> None:
    reference_run = loop(mm_us=(20.0, 24.0), transfer_us=500.0, dims="[[8,8],[8,8]]")
    result = LatenciesOf(reference_run, changed_inputs)(loop())
    assert step_times_us(result.graph) == pytest.approx([73.0, 73.0])
    assert result.touched.sum() == 2 * 2 * 2  # the product and the gap before it, on two ranks in two steps


def test_one_ranks_shapes() -> None:
    reference_run = loop(mm_us=(30.0, 14.0))
    rank = reference_run.nodes["rank"] == 0
    dims = reference_run.nodes["input_dims"].astype("object")
    dims = dims.mask(rank & (reference_run.nodes["op_name"] == "aten::mm") & dims.notna(), "[[9,9]]").astype("category")
    result = LatenciesOf(replace(reference_run, nodes=reference_run.nodes.assign(input_dims=dims)), changed_inputs)(
        loop()
    )
    assert step_times_us(result.graph) == pytest.approx([79.0, 79.0])  # rank 0 arrives at 40
    assert result.touched.sum() == 2 * 2


def test_other_messages_touch_the_whole_collective() -> None:
    reference_run = loop(transfer_us=35.0)
    reference_run = replace(
        reference_run, nodes=reference_run.nodes.assign(message_bytes=reference_run.nodes["message_bytes"] * 2)
    )
    result = LatenciesOf(reference_run, changed_inputs)(loop())
    assert step_times_us(result.graph) == pytest.approx([68.0, 68.0])


def test_what_only_one_of_them_has_is_stated() -> None:
    graph, longer = loop(), RepeatOp(OpSelector("aten::mm"), 2)(loop()).graph
    there = LatenciesOf(longer, transfers)(graph)
    assert there.unknown == (
        "4.0 nodes per step (34 us) exist in the reference run only: the edit neither adds nor removes any",
    )
    here = LatenciesOf(graph, transfers)(longer)
    assert "exist in this graph only" in here.unknown[0]


def test_a_touched_node_that_the_reference_run_does_not_know_keeps_its_latency_and_is_stated() -> None:
    graph = loop()
    unknown = graph.nodes["latency_us"].mask(graph.nodes["node_type"] == "collective")
    result = LatenciesOf(replace(graph, nodes=graph.nodes.assign(latency_us=unknown)), transfers)(graph)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert result.unknown[0].startswith("1.0 touched nodes per step have no counterpart")


def test_independent_edits_commute_and_add_up() -> None:
    graph, reference_run = loop(), loop(transfer_us=50.0)
    changes: list[Edit] = [
        Pause(1, Place.OPTIMIZER, 4.0),
        RepeatOp(OpSelector("aten::mm"), 2),
        LatenciesOf(reference_run, transfers),
    ]
    one, other = apply(graph, changes), apply(graph, changes[::-1])
    assert step_times_us(one.graph) == pytest.approx([106.0, 106.0])  # 63 + 4 + 19 + 20
    assert step_times_us(other.graph) == pytest.approx(step_times_us(one.graph))
    assert_frame_equal(one.graph.nodes, other.graph.nodes)
    assert one.touched.tolist() == other.touched.tolist()
    assert np.array_equal(graph.nodes["op_name"].to_numpy()[one.came_from], one.graph.nodes["op_name"].to_numpy())


def test_the_optimizer_of_a_table_is_touched_where_look_ups_changed() -> None:
    """Its gradient is sparse: the shape is the table's, however many rows were looked up."""

    def program(samples: int, scale: float) -> ExecutionGraph:
        ops = [("aten::embedding_bag", "embedding", "forward", f"[[9,4],[{samples}]]"),
               ("aten::add_", "elementwise", "optimizer", "[[9,4],[9,4],[]]"),
               ("aten::add_", "elementwise", "optimizer", "[[8,8],[8,8],[]]")]  # fmt: skip
        rows: list[dict[str, object]] = []
        for op, family, phase, dims in ops:
            at: dict[str, object] = {"thread": 0, "op_name": op, "phase": phase, "latency_us": scale}
            rows.append({**at, "node_type": NodeType.HOST, "segment": Segment.T1})
            rows.append({**at, "node_type": NodeType.COMPUTE, "family": family, "input_dims": dims})
        label = StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,), (0.0,))
        return make_graph(rows, [(n, n + 1, Relation.FOLLOWS) for n in range(5)], steps=(label,))

    result = LatenciesOf(program(16, 10.0), changed_inputs)(program(8, 1.0))
    assert result.graph.nodes["latency_us"].tolist() == [10.0, 10.0, 10.0, 10.0, 1.0, 1.0]


def test_the_other_way_round_needs_the_other_programs_waits() -> None:
    blocked = Block()(loop()).graph
    result = WaitAs(loop(1))(blocked)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert step_times_us(WaitAs(blocked)(loop()).graph) == pytest.approx([85.0, 85.0])


@pytest.mark.parametrize(
    ("rank", "place", "sleep_us", "expected"),
    [
        (0, Place.START, 4.0, 63.0),  # rank 0 then arrives when rank 1 does
        (0, Place.START, 9.0, 68.0),
        (1, Place.START, 4.0, 67.0),
        (0, Place.BACKWARD, 5.0, 63.0),  # backward ends 7 before the transfer
        (0, Place.BACKWARD, 10.0, 66.0),
        (1, Place.OPTIMIZER, 4.0, 67.0),
    ],
)
def test_a_sleep_by_hand(rank: int, place: Place, sleep_us: float, expected: float) -> None:
    result = Pause(rank, place, sleep_us)(loop())
    assert step_times_us(result.graph) == pytest.approx([expected, expected])
    assert result.touched.sum() == 2
    assert not result.unknown


@given(
    rank=st.sampled_from([0, 1]),
    place=st.sampled_from(list(Place)),
    sleep_us=st.floats(0, 200),
    steps=st.integers(1, 3),
)
def test_a_sleep_delays_by_between_nothing_and_its_length(rank: int, place: Place, sleep_us: float, steps: int) -> None:
    graph = loop(steps)
    delay = step_times_us(Pause(rank, place, sleep_us)(graph).graph).sum() - step_times_us(graph).sum()
    assert -1e-6 <= delay <= steps * sleep_us + 1e-6


def test_the_inverse_takes_the_sleep_out() -> None:
    graph = loop()
    back = Pause(1, Place.OPTIMIZER, -40.0)(Pause(1, Place.OPTIMIZER, 40.0)(graph).graph)
    assert_frame_equal(back.graph.nodes, graph.nodes)
    assert not back.unknown


def test_a_gap_shorter_than_the_sleep_taken_out_is_stated() -> None:
    result = Pause(0, Place.BACKWARD, -5.0)(loop())
    assert result.graph.nodes["latency_us"].min() == 0.0
    assert "2 of 2 gaps are shorter than the sleep of 5 us" in result.unknown[0]


def test_a_step_takes_63_us_as_drawn() -> None:
    """Rank 1 arrives at 24, the transfer ends at 54, then 3 + 5 + 1."""
    assert step_times_us(loop()) == pytest.approx([63.0, 63.0])


def test_a_rank_begins_when_it_did() -> None:
    graph = loop()
    late = replace(graph.steps[0], rank_start_us=(100.0, 120.0))
    assert step_times_us(replace(graph, steps=(late, *graph.steps[1:]))) == pytest.approx([83.0, 63.0])


def test_work_outside_of_steps_does_not_count() -> None:
    graph = loop(3)
    step = graph.nodes["step"].where(graph.nodes["step"] != 2, -1).astype("int32")
    result = step_times_us(replace(graph, nodes=graph.nodes.assign(step=step), steps=graph.steps[:2]))
    assert result == pytest.approx([63.0, 63.0])


def test_unknown_latencies_take_the_median_of_their_kind() -> None:
    """Gaps 2.5, compute 12.5: arrival at 20, transfer until 50, then 9."""
    graph = loop(1)
    latency = np.where(graph.nodes["op_name"] == "aten::mm", np.nan, graph.nodes["latency_us"])
    assert step_times_us(replace(graph, nodes=graph.nodes.assign(latency_us=latency))) == pytest.approx([59.0])
