"""Latencies from a recording of the changed program."""

from dataclasses import replace

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.whatif import Block, Edit, Place, apply
from research.evaluation.interventions import step_times_us
from research.evaluation.op_copies import OpSelector
from research.evaluation.pairs import Pause
from research.evaluation.reference_run import LatenciesOf, WaitAs, changed_inputs, transfers
from research.evaluation.repeats import RepeatOp
from tests.whatif.loops import loop


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
