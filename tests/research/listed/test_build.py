from __future__ import annotations

from collections import Counter

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.transformer.items import Op
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.hardware import default_cluster, load_device
from research.listed import Part, build_listed, listed_program, sections
from research.listed.operator_list import ListedOp
from tests.research.listed.lists import X, op, residual


def _ops(part: Part, layers: int = 1, training: bool = True) -> Counter[str]:
    program = listed_program(sections(residual(), layers, training), part)
    return Counter(each.item.name for each in program if isinstance(each.item, Op))


def test_the_layer_is_what_lies_between_its_first_module_and_the_next_one() -> None:
    before, layer, after = sections(residual(), 3, training=False)
    assert [call.op.name for call in layer.calls] == ["m_h_0_ln", "m_h_0_fc", "add_1"]
    assert (before.repeats, layer.repeats, after.repeats) == (1, 3, 1)


def test_a_forward_pass_repeats_the_layer() -> None:
    forward = {"aten::embedding": 1, "aten::native_layer_norm": 3, "aten::addmm": 4, "aten::add": 3}
    assert _ops(Part.FORWARD, layers=3) == forward


def test_a_backward_pass_adds_up_gradients_where_a_result_goes_to_two_nodes() -> None:
    backward = _ops(Part.BOTH, layers=2) - _ops(Part.FORWARD, layers=2)
    assert backward["aten::add"] == 2  # of norm and residual, once per layer
    assert backward["aten::mm"] == 6 and backward["aten::sum"] == 3  # per linear layer two products and a bias
    assert backward["aten::native_layer_norm_backward"] == 2 and backward["aten::embedding_dense_backward"] == 1
    assert backward["aten::add_"] == 2 * 4 + 2 + 1  # parameters


def test_compute_nodes_are_the_ops_of_the_program_in_order() -> None:
    graph = build_listed("m", residual(), 2, Part.BOTH, training=True)
    names = [e.item.name for e in listed_program(sections(residual(), 2, True), Part.BOTH) if isinstance(e.item, Op)]
    computes = graph.nodes[graph.nodes["node_type"] == "compute"]
    assert computes["op_name"].tolist() == names and set(computes["dtype"]) <= {"float32", "int64"}
    assert set(computes["phase"]) == {"forward", "backward"} and set(computes["stream"]) == {0}
    result = AnalyticPredictor().predict(graph, default_cluster(load_device("t4")))
    assert not result.uncovered_ops and np.isfinite(result.latency_us).all()


def test_a_function_that_no_one_knows_is_named_not_skipped() -> None:
    odd = (*residual()[:4], op("frobnicate_1", "misc", "m_h_0_fc", (X,), X), residual()[5])
    graph = build_listed("m", odd, 1, Part.FORWARD, training=False)
    result = AnalyticPredictor().predict(graph, default_cluster(load_device("t4")))
    assert result.uncovered_ops == {"aten::frobnicate": 1}


def test_sums_over_ranks_are_transfers_of_the_group() -> None:
    shared = ListedOp("m_h_0_sum", "allreduce", frozenset(), (), (1,), forward_sum=64, backward_sum=64)
    ops = (*residual()[:4], shared, *residual()[4:])
    graph = build_listed("m", ops, 2, Part.BOTH, training=True, ways=Parallelism(tensor=4))
    sums = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert len(sums) == 4 and set(sums["message_bytes"]) == {256.0} and set(sums["group_size"]) == {4}
    assert graph.world_size == 4
