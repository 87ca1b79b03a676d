"""Layers divided over ranks: what a recorded run with tensor parallelism has, sizes by hand, what is refused."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate import Shape
from gnnperf.generate.transformer.build import build_plan
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import timed_edges
from gnnperf.whatif import Edited, WorldSize, apply
from gnnperf.whatif.added_sums import templates
from gnnperf.whatif.costs import Cost, DistinctCall
from gnnperf.whatif.tensor_parallel import Role, TensorParallel, _Divide, _Layers
from tests.generate.transformer.plans import small
from tests.whatif.programs import recorded, transfers

RUNS = Path("datasets/cpu-gloo")
PRODUCTS = ("aten::addmm", "aten::mm", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::gelu")


@pytest.fixture(scope="module")
def before() -> ExecutionGraph:
    return recorded("gpt_l2_w256_s64_b4_x2_lo/1")


@pytest.fixture(scope="module")
def edited(before: ExecutionGraph) -> Edited:
    return TensorParallel(2)(before)


def _calls(graph: ExecutionGraph) -> Counter[tuple[str, str, str]]:
    nodes = graph.nodes[(graph.nodes["node_type"] == "compute") & graph.nodes["op_name"].isin(PRODUCTS)]
    return Counter(nodes[["op_name", "phase", "input_dims"]].astype(str).itertuples(index=False, name=None))


def test_calls_and_sums_are_those_of_the_recorded_run_with_tensor_parallelism(edited: Edited) -> None:
    wanted = recorded("gpt_l2_w256_s64_b4_tp_x2_lo/1")
    assert _calls(edited.graph) == _calls(wanted)
    sums = transfers(edited.graph)[edited.touched[-len(transfers(edited.graph)) :]]
    layers = sums[sums["group_stride"] == 1]
    theirs = transfers(wanted)
    assert sorted(layers["message_bytes"]) == sorted([*theirs["message_bytes"]] * 2)  # of each of two groups
    assert Counter(layers["phase"].astype(str)) == {"forward": 8, "backward": 8}


def test_replicas_are_apart_and_sum_their_part_of_the_gradients(before: ExecutionGraph, edited: Edited) -> None:
    """Of 2 layers x 12 x 256^2 + 2 x 7 x 256 weights and 2 x 1000 x 256 + 64 x 256 + 512 others, 12 x 256^2 + ..."""
    graph = edited.graph
    assert (graph.ranks, graph.stands_for, graph.world_size) == ((0, 2), (2, 2), 4)
    own = transfers(graph)[(transfers(graph)["group_stride"] == 2).to_numpy()]
    assert set(own["group_size"]) == {2} and set(own["group_first"]) == {0}
    layers, biases, norms = 2 * 12 * 256**2, 2 * 7 * 256, (2 * 2 + 1) * 2 * 256
    others = 2 * 1000 * 256 + 64 * 256 + norms
    share = ((layers + biases) / 2 + others) / (layers + biases + others)
    assert own["message_bytes"].sum() == pytest.approx(share * transfers(before)["message_bytes"].sum())
    assert len(timed_edges(graph).order) == graph.num_nodes
    one = apply(before, [TensorParallel(2), WorldSize(2)]).graph
    assert one.world_size == 2 and set(transfers(one)["group_size"]) == {1, 2}


def test_a_plan_is_divided_as_the_plan_of_so_many_ranks_has_it() -> None:
    result, wanted = TensorParallel(2)(build_plan(small(1, 1, 8))).graph, build_plan(small(2, 1, 8))
    products = [
        graph.nodes[(graph.nodes["node_type"] == "compute") & (graph.nodes["family"] == "gemm")]
        for graph in (result, wanted)
    ]
    both = [Counter(nodes["input_dims"].astype(str).str.replace(" ", "")) for nodes in products]
    assert sum((both[0] & both[1]).values()) / sum(both[1].values()) > 0.9  # all but the logits, whole on every rank
    layers = [t[(t["group_stride"] == 1) & (t["group_size"] == 2)] for t in map(transfers, (result, wanted))]
    sizes = [Counter(own["message_bytes"]) for own in layers]
    assert not sizes[0] - sizes[1]
    assert sum(sizes[0].values()) == 4 * 4 * 2 * 3  # layers, micro-batches; halves forward, again and backward


def test_a_flat_buffer_of_all_gradients_is_divided_by_its_part_in_layers() -> None:
    """4 x (12 x 256^2 weights, 3 x 256 biases of qkv) of 3,454,464; logits and embeddings stay, which a plan divides.

    Hand count of the plan with 2 ranks: 1024 x 256 / 2 fewer, and the 4 x 1024 biases of gelu are half as many.
    """
    result, wanted = TensorParallel(2)(build_plan(small(1, 1, 8))).graph, build_plan(small(2, 1, 8))
    elements = 3_454_464 - 4 * (12 * 256**2 + 3 * 256) // 2
    own, theirs = ({*t["message_bytes"][t["group_size"] == 8]} for t in map(transfers, (result, wanted)))
    assert own == {2.0 * elements} and theirs == {3_493_888.0} == {2.0 * (elements - 1024 * 256 // 2 - 4 * 1024 // 2)}
    updates = result.nodes[result.nodes["op_name"].astype(str).eq("aten::_fused_adam_")]["input_dims"].dropna()
    assert all(dims.count(str(elements)) == 4 for dims in updates.astype(str))


def test_stages_of_a_pipeline_are_refused() -> None:
    with pytest.raises(InputError, match="stages of a pipeline"):
        TensorParallel(2)(build_plan(small(1, 2, 4)))


def test_only_gradients_are_divided(before: ExecutionGraph, edited: Edited) -> None:
    """The largest sum becomes a broadcast, the last one the 4 bytes of a norm: both stay, and the others do not."""
    sizes = before.nodes["message_bytes"]
    kinds = before.nodes["collective"].astype(object).mask(sizes == 2_074_624.0, "broadcast")
    nodes = before.nodes.assign(collective=pd.Categorical(kinds), message_bytes=sizes.mask(sizes == 1_091_584.0, 4.0))
    result, whole = (
        {*t["message_bytes"][t["group_stride"] == 2]}
        for t in (transfers(TensorParallel(2)(replace(before, nodes=nodes)).graph), transfers(edited.graph))
    )
    assert {4.0, 2_074_624.0} < result and len(result - whole) == 2


def test_sums_are_copies_of_those_of_their_own_rank_and_step(before: ExecutionGraph) -> None:
    like = templates(before)
    turned = replace(like, anchors=like.anchors[::-1])
    rank = before.nodes["rank"].to_numpy()
    for one in _Layers(before, turned).sums:
        assert rank[turned.anchors[one.template]] == rank[one.before[0]]
    with pytest.raises(InputError, match="rank 1 has no all_reduce in step 1"):
        _Layers(before, replace(like, anchors=like.anchors[:1]))


@pytest.mark.parametrize(
    ("shapes", "by_hand"),
    [
        ([(4, 256, 256), (4, 256, 64)], [(2, 256, 256), (2, 256, 64)]),  # scores x values; sequence = hidden
        ([(1, 4, 256, 256), (256, 256)], [(1, 2, 256, 256), (256, 256)]),  # a mask stays
        ([(4, 64, 1024)], [(4, 64, 512)]),  # columns, although as many samples as heads
    ],
)
def test_heads_before_columns(shapes: list[Shape], by_hand: list[Shape]) -> None:
    divide = _Divide(Role.INNER, 2, {256, 1024}, (4,), {(256, 256): (128, 256)})
    name = "aten::bmm" if len(shapes[0]) == 3 and len(shapes) == 2 else "aten::mul"
    result = divide.of(DistinctCall(name, "forward", tuple(shapes), "float32", "gemm", Cost(1e6, 1e6), 1, 1))
    assert result is not None and [*result[0]] == by_hand and np.isfinite(result[1].bytes)


def test_factors_that_no_longer_match_are_refused() -> None:
    divide = _Divide(Role.INNER, 2, {256}, (), {})
    product = DistinctCall("aten::bmm", "forward", ((4, 256, 256), (4, 256, 64)), "float32", "gemm", Cost(1, 1), 1, 1)
    with pytest.raises(InputError, match="aten::bmm"):
        divide.of(product)


def test_a_run_on_one_gpu_gets_sums_that_nothing_measured() -> None:
    """4 layers of 12 x 1024^2 weights are divided, the logits' 32,000 x 1024 are not; attention is a few percent."""
    graph = recorded("../h200/gpt_l4_w1024_s1024_b8_v32k_bfloat16_x1_lo/1")
    edited = TensorParallel(2)(graph)
    flops = [np.nansum(one.nodes["flops"][one.nodes["node_type"] == "compute"]) for one in (edited.graph, graph)]
    assert flops[0] / flops[1] == pytest.approx((2 * 12 * 1024 + 32000) / (4 * 12 * 1024 + 32000), rel=0.03)
    sums = transfers(edited.graph)
    assert len(sums) == 4 * 2 * 2 and set(sums["message_bytes"]) == {2.0 * 8 * 1024 * 1024}
    assert sums["latency_us"].isna().all() and edited.graph.world_size == 2


@pytest.mark.parametrize(
    ("run", "ranks", "message"),
    [
        ("gpt_l2_w256_s64_b4_tp_x2_lo/1", 2, "its layers are divided already"),
        ("gpt_l2_w256_s64_b4_fsdp_x2_lo/1", 2, "FSDP"),
        ("gpt_l2_w256_s64_b4_x2_lo/1", 3, "3 does not divide"),
        ("dlrm_t4_r10k_d16_b256_x2_lo/1", 2, "no layers of a transformer"),
    ],
)
def test_what_is_refused(run: str, ranks: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TensorParallel(ranks)(recorded(run))


def test_one_rank_changes_nothing(before: ExecutionGraph) -> None:
    assert TensorParallel(1)(before).graph is before
    with pytest.raises(InputError, match="tensor-parallel group"):
        TensorParallel(0)
    assert np.isfinite(before.nodes["flops"]).any()
