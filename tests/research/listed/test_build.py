from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate import Op, Parallelism
from gnnperf.hardware import default_cluster, load_device
from research.listed import Part, build_listed, listed_program, sections
from research.listed.call import Layout, contiguous, permuted, viewed
from research.listed.nodes import backward_items, calls_of, forward_items
from research.listed.operator_list import NUMBER, ListedOp, read_operator_list
from research.tables.model_labels import layers_of, operator_list_path, read_model_labels, run_of


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


# A layer of three nodes between two others, by hand.


X = (2, 4, 8)


def op(name: str, kind: str, sources: str, inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> ListedOp:
    """A node; `sources` are names with spaces between them."""
    return ListedOp(name, kind, frozenset(sources.split()), inputs, output)


def residual() -> tuple[ListedOp, ...]:
    """embed | norm -> linear, added to the norm's input | head."""
    return (
        op("input_ids", "misc", "", (), (2, 4)),
        op("wte", "misc", "input_ids", ((2, 4),), X),
        op("m_h_0_ln", "VECln", "wte", (X,), X),
        op("m_h_0_fc", "Linear", "m_h_0_ln", (X,), X),
        op("add_1", "VECadd", "m_h_0_fc wte", (X, X), X),
        op("lm_head", "Linear", "add_1", (X,), (2, 4, 16)),
    )


START = op("h_0_fc", "Linear", "", (X,), X)  # its result gets a gradient


def _names(ops: tuple[ListedOp, ...], name: str, backward: bool = False) -> list[str]:
    call = next(c for c in calls_of(ops, training=True) if c.op.name == name)
    items = backward_items(call) if backward else forward_items(call)
    return [item.name.removeprefix("aten::") for item in items if isinstance(item, Op)]


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        ("VECsoftmax", ["_softmax"], ["mul", "_softmax_backward_data"]),
        ("VECpowu", ["pow"], ["pow", "mul", "mul"]),
        ("VECtanh", ["tanh"], ["tanh_backward"]),
        ("VECgelu", ["gelu"], ["gelu_backward"]),
        ("VECmulu", ["mul"], ["mul"]),
        ("VECaddu", ["add"], []),
        ("dropout", ["native_dropout"], ["copy_", "mul", "mul"]),
        ("VECln", ["native_layer_norm"], ["native_layer_norm_backward", "add_", "add_"]),
    ],
)
def test_each_kind_calls_what_torch_calls(kind: str, forward: list[str], backward: list[str]) -> None:
    ops = (START, op("f_1", kind, "h_0_fc", (X,), X))
    assert _names(ops, "f_1") == forward
    assert _names(ops, "f_1", backward=True) == backward


def test_two_gradients_where_two_arguments_want_them_and_none_for_a_mask() -> None:
    two = (START, op("h_0_b", "Linear", "h_0_fc", (X,), X), op("mul_1", "VECmul", "h_0_fc h_0_b", (X, X), X))
    assert _names(two, "mul_1", backward=True) == ["mul", "mul"]
    mask = (op("lt", "misc", "", (X,), X), START, op("where", "where", "lt h_0_fc", (X, X, NUMBER), X))
    assert _names(mask, "where", backward=True) == ["where"]


def _heads(batch: int) -> tuple[ListedOp, ...]:
    whole, split, turned = (batch, 4, 8), (batch, 4, 2, 4), (batch, 2, 4, 4)
    return (
        op("h_0_fc", "Linear", "", (whole,), whole),
        op("view", "misc", "h_0_fc", (whole, NUMBER), split),
        op("permute", "misc", "view", (split,), turned),
        op("matmul", "BMM", "permute", (turned, turned), turned),
    )


def test_heads_of_several_sequences_are_copied_for_a_batched_product() -> None:
    assert _names(_heads(1), "matmul") == ["bmm"]
    assert _names(_heads(3), "matmul") == ["copy_", "bmm"]


def test_the_gradient_of_a_view_of_heads_is_copied() -> None:
    assert _names(_heads(1), "view", backward=True) == ["copy_"]


def test_parts_of_a_split_share_strides_and_their_gradients_are_joined() -> None:
    whole, part = (1, 4, 24), (1, 4, 8)
    ops = (
        op("h_0_fc", "Linear", "", ((1, 4, 8),), whole),
        op("split", "misc", "h_0_fc", (whole,), NUMBER),
        op("getitem_1", "getitem", "split", (NUMBER,), part),
        op("reshape", "misc", "getitem_1", (part,), (32,)),
    )
    assert _names(ops, "reshape") == ["copy_"]  # rows lie 24 apart
    assert _names(ops, "split", backward=True) == ["cat"] and _names(ops, "getitem_1", backward=True) == []


def test_what_uses_a_divided_product_is_divided_and_gets_gradients() -> None:
    """Tensor parallelism: the list divides the product's result, [8, 4] of [8, 16], and not what follows it."""
    ops = (
        op("h_0_fc", "Linear", "", ((8, 8),), (8, 4)),
        op("view", "misc", "h_0_fc", ((8, 16), NUMBER), (2, 4, 16)),
        op("tanh", "VECtanh", "view", ((2, 4, 16),), (2, 4, 16)),
        op("add", "VECadd", "tanh view", ((2, 4, 16), (2, 4, 16)), (2, 4, 16)),
    )
    calls = calls_of(ops, training=True)
    assert [call.op.output for call in calls] == [(8, 4), (2, 4, 4), (2, 4, 4), (2, 4, 4)]
    assert [argument.differentiable for call in calls[1:] for argument in call.arguments] == [True] * 4


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def test_heads_of_one_sequence_fold_without_a_copy_and_of_two_do_not() -> None:
    one = permuted(contiguous((1, 8, 2, 4)), (1, 2, 8, 4))
    two = permuted(contiguous((3, 8, 2, 4)), (3, 2, 8, 4))
    assert one is not None and two is not None and not two.is_contiguous
    assert viewed(one, (2, 8, 4)) == Layout((2, 8, 4), (4, 8, 1))
    assert viewed(two, (6, 8, 4)) is None


def test_of_several_orders_the_one_that_moves_fewest_axes_is_taken() -> None:
    result = permuted(contiguous((2, 5, 2, 3)), (2, 2, 5, 3))
    assert result == Layout((2, 2, 5, 3), (30, 3, 6, 1))


@given(SHAPES, SHAPES)
def test_a_contiguous_tensor_can_be_viewed_as_whatever_has_its_elements(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    result = viewed(contiguous(old), new)
    assert (result is not None) == (prod(old) == prod(new))
    assert result is None or result.is_contiguous


@given(SHAPES, st.randoms(use_true_random=False), SHAPES)
def test_a_view_has_the_elements_in_the_order_that_numpy_has_them(shape: tuple[int, ...], random, new) -> None:  # type: ignore[no-untyped-def]
    axes = list(range(len(shape)))
    random.shuffle(axes)
    flat = np.arange(prod(shape))
    base = contiguous(shape)
    turned = Layout(tuple(shape[a] for a in axes), tuple(base.strides[a] for a in axes))
    result = viewed(turned, new)
    if result is None:
        return
    strided = np.lib.stride_tricks.as_strided(flat, result.shape, [s * flat.itemsize for s in result.strides])
    expected = flat.reshape(shape).transpose(axes).reshape(new)
    assert (strided == expected).all()


HEAD = "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape"


def _list(folder: Path, *lines: str) -> Path:
    path = folder / "list.csv"
    path.write_text("\n".join((HEAD, *lines)) + "\n", encoding="utf-8")
    return path


def test_a_node_has_shapes_and_sources(tmp_path: Path) -> None:
    line = """matmul_1,BMM,"[['BMM', (2, 3, 4, 5)]]",[],[],"{'b', 'a'}",{'c'},"[(2, 3, 4), (2, 4, 5)]","(2, 3, 5)\""""
    (results,) = read_operator_list(_list(tmp_path, line))
    assert results == ListedOp("matmul_1", "BMM", frozenset("ab"), ((2, 3, 4), (2, 4, 5)), (2, 3, 5))
    assert results.function == "matmul" and results.tensors == results.inputs


def test_a_number_is_no_tensor_and_a_path_keeps_its_number(tmp_path: Path) -> None:
    lines = (
        'size,misc,[],[],[],set(),set(),"[(2, 3), (1,)]","(1,)"',
        'h_0_ln_1,VECln,[],[],[],set(),set(),[],"(2, 3)"',
    )
    size, norm = read_operator_list(_list(tmp_path, *lines))
    assert size.tensors == ((2, 3),) and size.output == NUMBER
    assert norm.name == "h_0_ln_1" and not norm.sources


def test_sums_over_ranks_and_rows_of_tables_are_read(tmp_path: Path) -> None:
    lines = (
        "g,allreduce,[],\"[['ALLREDUCE_ASYNC', (12,)]]\",[],set(),set(),[],[]",
        "s,allreduce,\"[['ALLREDUCE', (7,)]]\",\"[['ALLREDUCE', (7,)]]\",[],set(),set(),[],[]",
        'e,EMBEDDING,[],"[[\'MEM\', ((50, 4),)]]",[],set(),set(),"[(2, 3)]","(2, 3, 4)"',
    )
    gradient, result, table = read_operator_list(_list(tmp_path, *lines))
    assert (gradient.forward_sum, gradient.backward_sum, gradient.aside) == (0, 12, True)
    assert (result.forward_sum, result.backward_sum, result.aside) == (7, 7, False)
    assert table.table_rows == 50


# Every kind of public list: layers found, all ops priced, and a label next to it.


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "first", "last", "layers"),
    [
        ("bert_large-train-512-2", "attention_self_query", "output_layer_norm", 24),
        ("gpt2_large-train-1024-1", "h_0_ln_1", "add_15", 36),
        ("opt_13-inf-2048-2", "self_attn_layer_norm", "view_11", 24),
    ],
)
def test_layers_and_coefficients_of_public_lists(mirror: Path, name: str, first: str, last: str, layers: int) -> None:
    run = run_of(name)
    ops, repeats = read_operator_list(operator_list_path(mirror, run)), layers_of(mirror, run.model)
    _, layer, _ = sections(ops, repeats, run.training)
    assert layer.calls[0].op.name.endswith(first) and layer.calls[-1].op.name.endswith(last)
    assert layer.repeats == layers
    graph = build_listed(name, ops, 2, Part.BOTH if run.training else Part.FORWARD, run.training)
    result = AnalyticPredictor().predict(graph, default_cluster(load_device("v100_pcie_32gb")))
    assert not result.uncovered_ops and np.isfinite(result.latency_us).all()


@pytest.mark.mirror
def test_labels_of_the_mirror_are_read(mirror: Path) -> None:
    labels = read_model_labels(mirror)
    assert len(labels) > 100 and all(label.total_us > 0 for label in labels)
    assert {label.device for label in labels} >= {"Tesla P4", "NVIDIA L4", "NVIDIA A100 80GB PCIe"}
