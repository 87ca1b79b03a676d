"""The batch of one layer: the edited graph is the graph of the program with the other batch."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from gnnperf.core.errors import InputError
from gnnperf.generate.transformer.build import build_plan
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.trace import read_run
from gnnperf.whatif import ScaleBatch, apply
from gnnperf.whatif.batch_shapes import _without_sequence, find_batch, scale_call
from tests.generate.transformer.plans import small
from tests.whatif import programs
from tests.whatif.loops import loop

sizes = st.tuples(st.sampled_from([2, 3, 4, 6]), st.sampled_from([17, 19]), st.sampled_from([7, 11]),
                  st.sampled_from([101, 103]))  # fmt: skip


def assert_same(result: ExecutionGraph, expected: ExecutionGraph, rtol: float = 1e-7) -> None:
    dims = [graph.nodes["input_dims"].astype(object).fillna("").tolist() for graph in (result, expected)]
    assert dims[0] == dims[1]
    for column in ("flops", "bytes", "message_bytes"):
        np.testing.assert_allclose(result.nodes[column], expected.nodes[column], rtol=rtol, err_msg=column)


def test_by_hand() -> None:
    """Two sequences of 3 tokens become four: width 5, 7 words."""
    graph = programs.layer(2, 3, 5, 7)
    assert find_batch(graph).sizes == {2, 6}
    result = ScaleBatch(2.0)(graph).graph.nodes
    assert result["input_dims"][programs.LINEAR] == "[[12,5],[7,5],[7]]"
    assert result["input_dims"][programs.GRADIENT_IN] == "[[12,7],[7,5]]"
    assert result["input_dims"][programs.GRADIENT_W] == "[[7,12],[12,5]]"
    assert result["input_dims"][programs.SEND] == "[[12,5]]"
    assert result["flops"][programs.GRADIENT_IN] == 2 * 12 * 7 * 5
    assert result["bytes"][programs.GRADIENT_W] == 4 * (7 * 12 + 12 * 5 + 7 * 5)
    assert result["input_dims"][programs.UPDATE] == graph.nodes["input_dims"][programs.UPDATE]
    assert result["message_bytes"][[programs.ARRIVE, programs.EXIT, programs.TRANSFER]].tolist() == [4.0 * 12 * 5] * 3
    assert result["latency_us"][[programs.LINEAR, programs.TRANSFER]].isna().all()
    assert result["latency_us"][[programs.UPDATE, programs.SEND]].notna().all()


def test_what_all_samples_share_is_no_batch() -> None:
    """Positions [1,3] of two sequences of 3 tokens, and a table of 4 distances; a batch of one stays one."""
    tokens = ("aten::embedding", "forward", ((7, 5), (2, 3)))
    assert _without_sequence({(2, 3), (6, 5), (1, 3), (3,), (1, 4, 5), (4, 5)}, [tokens]) == {2, 6}
    assert _without_sequence({(1, 3), (3, 5)}, [("aten::embedding", "forward", ((7, 5), (1, 3)))]) == {1, 3}


@settings(max_examples=10)
@given(sizes, st.sampled_from([2.0, 3.0, 5.0]), st.booleans())
def test_edited_is_what_the_program_would_be(size: tuple[int, int, int, int], factor: float, sends: bool) -> None:
    batch, *rest = size
    edited = ScaleBatch(factor)(programs.layer(batch, *rest, sends=sends)).graph
    assert_same(edited, programs.layer(round(batch * factor), *rest, sends=sends))


def test_one_changes_nothing() -> None:
    graph = programs.layer(2, 3, 5, 7)
    result = ScaleBatch(1.0)(graph)
    assert_frame_equal(result.graph.nodes, graph.nodes)
    assert not result.touched.any()


def test_what_shapes_leave_open_is_named() -> None:
    """As many tokens as words: [6,6] x [6,5] is the gradient of the input or of the weight."""
    result = ScaleBatch(2.0)(programs.layer(2, 3, 5, 6))
    assert any("which dimension is the batch in aten::mm (2)" in sentence for sentence in result.unknown)


def test_an_op_without_a_formula_is_named_and_grows() -> None:
    graph = programs.layer(2, 3, 5, 7)
    names = graph.nodes["op_name"].astype(object).replace("aten::_log_softmax", "mine::loss").astype("category")
    strange = replace(graph, nodes=graph.nodes.assign(op_name=names, flops=graph.nodes["flops"].fillna(1.0)))
    result = ScaleBatch(2.0)(strange)
    assert any("mine::loss (1)" in sentence and "no formula" in sentence for sentence in result.unknown)
    assert result.graph.nodes["flops"][2] == 2 * strange.nodes["flops"][2]


def test_gathered_parameters_stay_where_there_are_as_many_ranks_as_sequences() -> None:
    call = ("fsdp::split_with_sizes_copy", "forward", ((2, 40), ((2, 35), (2, 5))))
    assert scale_call(call, find_batch(programs.layer(2, 3, 5, 7)), 2.0).arguments == call[2]


def test_sizes_that_data_decide_are_rounded_and_named() -> None:
    """13 rows of a table were looked up in a batch of 6 tokens; of 3 tokens it may be 6 or 7."""
    graph = programs.layer(2, 3, 5, 7)
    dims = graph.nodes["input_dims"].astype(object)
    dims[0], dims[2] = "[[7,5],[13],[6],[],[],[],[],[],[]]", "[[13,5],[],[]]"
    names = graph.nodes["op_name"].astype(object)
    names[0] = "aten::embedding_bag"
    changed = graph.nodes.assign(input_dims=dims.astype("category"), op_name=names.astype("category"))
    result = ScaleBatch(0.5)(replace(graph, nodes=changed))
    assert result.graph.nodes["input_dims"][2] == "[[6,5],[],[]]"
    assert any("sizes that data decide" in sentence and "(13)" in sentence for sentence in result.unknown)


def test_refusals() -> None:
    with pytest.raises(InputError, match="no whole size"):
        ScaleBatch(0.3)(programs.layer(2, 3, 5, 7))
    with pytest.raises(InputError, match="no op whose shapes tell the batch"):
        ScaleBatch(2.0)(loop(1, dims="[]"))
    with pytest.raises(InputError, match="above 0"):
        ScaleBatch(0.0)


@pytest.mark.parametrize(("values", "grows"), [(6 * 5, True), (7 * 5 + 8, False)])
def test_messages_of_unknown_shapes_are_reported_by_their_size(values: int, grows: bool) -> None:
    """As in plans: 30 values are the activations [6,5], 43 are no tensor that grows."""
    nodes = programs.layer(2, 3, 5, 7).nodes
    sent = nodes["message_bytes"].notna().to_numpy()
    dims = nodes["input_dims"].astype(object).where(nodes.index != programs.SEND, None)
    dtype = nodes["dtype"].astype(object).where(~sent, "float32")
    changed = nodes.assign(
        input_dims=dims.astype("category"), dtype=dtype.astype("category"),
        message_bytes=nodes["message_bytes"].where(~sent, 4.0 * values),
    )  # fmt: skip
    result = ScaleBatch(2.0)(replace(programs.layer(2, 3, 5, 7), nodes=changed)).graph.nodes
    assert result["message_bytes"][programs.TRANSFER] == 4.0 * values * (2 if grows else 1)


def test_a_dense_gradient_of_a_table_is_zeroed_once() -> None:
    """3 x 80 rows of 8 and their indices move, and the 100 rows of the table."""
    result = ScaleBatch(2.0)(programs.lookups(100, dense=True)).graph.nodes
    assert result["bytes"][programs.DENSE] == 4.0 * (3 * 80 * 8 + 100 * 8) + 8 * 80


def test_samples_in_other_layouts_follow_tensors_and_not_equal_numbers() -> None:
    """21 tokens are 7 places of 3 samples: [7,3,10], [3,2,7,7], 6 = 3 x 2 heads; a call on [3,10] is none of data."""
    batch = find_batch(programs.sequence_first(3))
    assert (batch.sizes, batch.samples, batch.merged, batch.flat) == ({21}, {3}, {6}, {294})
    result = ScaleBatch(2.0)(programs.sequence_first(3)).graph.nodes
    expected = programs.sequence_first(6).nodes
    decoys = [15, 17]
    for column in ("flops", "bytes", "message_bytes"):
        np.testing.assert_allclose(result[column].drop(decoys), expected[column].drop(decoys), err_msg=column)
    dims = [nodes["input_dims"].astype(object).fillna("").drop([*decoys, 21]).tolist() for nodes in (result, expected)]
    assert dims[0] == dims[1]
    assert result["input_dims"][decoys].tolist() == ["[[3,10],[]]", "[[7,3,10],[1],[]]"]


def test_without_followed_tensors_layouts_decide() -> None:
    batch = find_batch(programs.sequence_first(3, followed=False))
    assert (batch.sizes, batch.samples, batch.merged, batch.flat) == ({21}, {3}, {6}, set())
    result = ScaleBatch(2.0)(programs.sequence_first(3, followed=False)).graph.nodes
    assert result["input_dims"][[3, 11]].tolist() == ["[[7,6,10],[10],[]]", "[[12,7,7],[12,7,5]]"]
    assert result["message_bytes"].dropna().tolist() == [4.0 * 42 * 10] * 3


def test_a_plan_of_larger_micro_batches_is_the_edited_plan() -> None:
    """Heads are a dimension with the samples in it; the scores of a plan give how many."""
    plan = small(2, 1, 1, micro_batch=5)
    larger = replace(plan, schedule=replace(plan.schedule, micro_batch=10, global_batch=2 * plan.schedule.global_batch))
    result, expected = (
        graph.nodes[graph.nodes["node_type"] == "compute"].reset_index(drop=True)
        for graph in (ScaleBatch(2)(build_plan(plan)).graph, build_plan(larger))
    )
    assert [json.loads(dims) for dims in result["input_dims"]] == [json.loads(dims) for dims in expected["input_dims"]]
    np.testing.assert_allclose(result["flops"], expected["flops"])


def _on_a_stream(dims: str | None) -> ExecutionGraph:
    """The layer's linear op on a GPU, and two kernels without shapes; an exchange of unknown size."""
    graph = programs.layer(2, 3, 5, 7)
    nodes = graph.nodes.assign(stream=np.where(graph.nodes["node_type"] == "compute", 0, -1))
    blank = ["input_dims", "flops", "bytes"]
    rows = [programs.LOSS, programs.GRADIENT_IN] if dims else nodes.index.tolist()
    nodes = nodes.astype({"input_dims": object})
    nodes.loc[rows, blank] = np.nan
    nodes.loc[programs.LOSS, "latency_us"] = 30.0
    return replace(graph, nodes=nodes.astype({"input_dims": "category"}), device_names=("A100",))


def test_kernels_without_shapes_change_as_the_rest_of_their_family() -> None:
    result = ScaleBatch(2)(_on_a_stream("known"))
    assert result.touched[[programs.LOSS, programs.GRADIENT_IN]].all()
    assert result.graph.nodes["latency_us"][[programs.LOSS, programs.GRADIENT_IN]].isna().all()
    assert any(sentence.startswith("kernels and copies without shapes (2, 0.035 ms)") for sentence in result.unknown)


def test_without_any_shapes_work_and_messages_of_data_take_as_many_times_as_long() -> None:
    result = ScaleBatch(3)(_on_a_stream(None))
    factor = result.latency_change.factor
    assert factor[[programs.LOSS, programs.TRANSFER]].tolist() == [3.0, 3.0]
    # of 5 us: bound by its launch; of parameters
    assert factor[[programs.LINEAR, programs.UPDATE]].tolist() == [1.0, 1.0]
    assert "no shapes were recorded" in result.unknown[0]


@pytest.mark.mirror
def test_all_work_and_messages_of_a_tensor_parallel_run_grow(mirror: Path) -> None:
    """Before, 51 % of the time of kernels and all messages stayed as they were."""
    folder = mirror / "NVIDIA+Megatron-LM/tp2"
    run = read_run([*sorted(folder.glob("result/*/*.json.gz")), *sorted(folder.glob("pytorch_et_*.json.gz"))])
    graph = build_graph(run).step(0).for_predictors()
    edited = ScaleBatch(2.0)(graph).graph
    before, after = graph.nodes, edited.nodes
    sent = before["message_bytes"].notna()
    assert (after["message_bytes"][sent] == 2 * before["message_bytes"][sent]).all()
    products = before["family"].eq("gemm") & before["node_type"].eq("compute") & before["flops"].notna()
    np.testing.assert_allclose(after["flops"][products], 2 * before["flops"][products])
    works = before["node_type"].eq("compute") & before["phase"].ne("optimizer") & before["input_dims"].notna()
    stays = works & (before["input_dims"].astype(object) == after["input_dims"].astype(object))
    assert before["latency_us"][stays].sum() < 0.1 * before["latency_us"][works].sum()
    assert before["latency_us"][stays].max() < 8.0  # scalars, and gradients of tables set to 0


@settings(max_examples=5)
@given(sizes)
def test_factors_compose(size: tuple[int, int, int, int]) -> None:
    graph = programs.layer(*size)
    assert_same(apply(graph, [ScaleBatch(2.0), ScaleBatch(3.0)]).graph, ScaleBatch(6.0)(graph).graph)
    back = apply(graph, [ScaleBatch(2.0), ScaleBatch(0.5)])
    assert_same(back.graph, graph)
    assert back.touched[programs.LINEAR]
