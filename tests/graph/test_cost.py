"""Costs of calls given by hand, and of what the profiler records of a program."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from gnnperf.core import OpFamily
from gnnperf.graph.cost import OpCost, op_cost, supported_ops


def cost(name: str, dims: list, types: list[str] | None = None, values: list[str] | None = None) -> OpCost:
    def texts(result: list | None) -> str | None:
        return None if result is None else json.dumps(result)

    return op_cost(name, texts(dims), texts(types), texts(values))


def recorded_calls(run: Callable[[], object], tmp_path: Path) -> list[tuple[str, OpCost]]:
    """Cost of every op the profiler records while `run` runs, from the texts it writes."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorder:
        run()
    recorder.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ops = [e for e in events if e.get("cat") == "cpu_op"]
    keys = ("Input Dims", "Input type", "Concrete Inputs")
    return [(e["name"], op_cost(e["name"], *(json.dumps(e["args"].get(k)) for k in keys))) for e in ops]


def counted_flops(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def _backward(result: torch.Tensor) -> None:
    result.sum().backward()


def _image(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


CONVOLVED, BOTH = ("aten::convolution",), ("aten::convolution", "aten::convolution_backward")
CASES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "mm": (lambda: torch.mm(torch.ones(3, 4), torch.ones(4, 5)), ("aten::mm",)),
    "addmm": (lambda: torch.addmm(torch.ones(5), torch.ones(3, 4), torch.ones(4, 5)), ("aten::addmm",)),
    "bmm": (lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5)), ("aten::bmm",)),
    "baddbmm": (lambda: torch.baddbmm(torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)),
                ("aten::baddbmm",)),
    "linear and its backward": (
        lambda: _backward(functional.linear(_image(6, 4), _image(5, 4), _image(5))), ("aten::addmm", "aten::mm")),
    "convolution, stride and padding": (
        lambda: functional.conv2d(torch.ones(2, 3, 9, 8), torch.ones(4, 3, 3, 3), stride=2, padding=1), CONVOLVED),
    "convolution, groups and dilation": (
        lambda: functional.conv2d(torch.ones(2, 4, 9, 9), torch.ones(8, 2, 3, 3), dilation=2, groups=2), CONVOLVED),
    "transposed convolution": (
        lambda: functional.conv_transpose2d(torch.ones(2, 4, 5, 5), torch.ones(4, 3, 3, 3), stride=2, padding=1,
                                            output_padding=1), CONVOLVED),
    "one-dimensional convolution": (
        lambda: functional.conv1d(torch.ones(2, 3, 9), torch.ones(4, 3, 3), padding=1), CONVOLVED),
    "convolution backward": (
        lambda: _backward(functional.conv2d(_image(2, 4, 9, 9), _image(6, 4, 3, 3), stride=2)), BOTH),
    "convolution backward, weight only": (
        lambda: _backward(functional.conv2d(torch.ones(2, 4, 9, 9), _image(6, 4, 3, 3))), BOTH),
    "transposed convolution backward": (
        lambda: _backward(functional.conv_transpose2d(_image(2, 4, 5, 5), _image(4, 3, 3, 3), stride=2)), BOTH),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_flops_of_recorded_ops_equal_torchs_flop_counter(case: str, tmp_path: Path) -> None:
    run, names = CASES[case]
    calls = [(name, results) for name, results in recorded_calls(run, tmp_path) if name in names]
    assert {name for name, _ in calls} == set(names)
    assert sum(results.flops for _, results in calls) == counted_flops(run)
    assert all(results.dtype == "float32" for _, results in calls)


def test_backward_of_a_grouped_convolution_is_twice_its_forward() -> None:
    """By hand, because torch's counter (2.13) forgets the groups in the weight gradient."""
    grad, x, weight = [2, 6, 4, 4], [2, 4, 9, 9], [6, 2, 3, 3]
    types = ["float"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"]
    values = ["", "", "", "[0]", "[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "2", "[True, True, False]"]
    results = cost("aten::convolution_backward", [grad, x, weight, *[[]] * 8], types, values)
    assert results.flops == 2 * (2 * (2 * 6 * 4 * 4) * (2 * 3 * 3))


def test_convolution_has_the_same_cost_in_the_backends_argument_orders() -> None:
    x, weight = [8, 4, 16, 16], [6, 2, 3, 3]
    types = ["float"] * 3 + ["ScalarList"] * 3 + ["Scalar"] * 6
    aten = cost("aten::convolution", [x, weight, [], [], [], [], [], [], []], types,
                ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2"])  # fmt: skip
    cudnn = cost("aten::cudnn_convolution", [x, weight, [], [], [], []], ["float", "float"] + ["ScalarList"] * 4,
                 ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"])  # fmt: skip
    with_bias = ([x, weight, *[[]] * 5], ["float", "float", "", *["ScalarList"] * 4],
                 ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"])  # fmt: skip
    onednn = cost("aten::mkldnn_convolution", *with_bias)
    miopen = cost("aten::miopen_convolution", *with_bias)
    assert aten.flops == cudnn.flops == onednn.flops == miopen.flops == 2 * (8 * 6 * 8 * 8) * (2 * 3 * 3)


def test_a_recurrent_layer_is_its_gates_of_all_steps(tmp_path: Path) -> None:
    """3 steps x 2 samples of 4 numbers, states of 2: four gates of weights [2, 4] and [2, 2] each."""
    lstm, x = torch.nn.LSTM(4, 2), torch.zeros(3, 2, 4)
    calls = recorded_calls(lambda: lstm(x)[0].sum().backward(), tmp_path)
    results = {name: cost for name, cost in calls if cost.family == OpFamily.GEMM and "rnn" in name}
    forward = results["aten::mkldnn_rnn_layer"]
    assert forward.flops == 2 * 6 * (8 * 4 + 8 * 2) + 10 * 6 * 2
    assert forward.bytes == 4 * (24 + 8 * 4 + 8 * 2 + 2 * 12)
    backward = results["aten::mkldnn_rnn_layer_backward"]
    assert (backward.flops, backward.bytes) == (2 * forward.flops, 2 * forward.bytes)


def test_a_recurrent_stack_counts_matrices_of_all_layers() -> None:
    """Two layers of one gate, states of 2; biases are no products."""
    weights = [[2, 4], [2, 2], [2], [2], [2, 2], [2, 2], [2], [2]]
    types = ["float", "TensorList"]
    results = cost("aten::_cudnn_rnn", [[3, 2, 4], weights], types)
    assert results.flops == 2 * 6 * (8 + 4 + 4 + 4) + 10 * 6 * (2 + 2)
    assert math.isnan(cost("aten::_cudnn_rnn", [[3, 2, 4], []], types).flops)


def _cpu_attention() -> None:
    q, k, v = (torch.ones(2, 3, 7, 8, requires_grad=True) for _ in range(3))
    functional.scaled_dot_product_attention(q, k, v).sum().backward()


def test_attention_op_of_the_profiler_is_costed(tmp_path: Path) -> None:
    calls = dict(recorded_calls(_cpu_attention, tmp_path))
    assert calls["aten::_scaled_dot_product_flash_attention_for_cpu"].flops == 2 * 2 * 3 * 7 * 7 * (8 + 8)
    assert calls["aten::_scaled_dot_product_flash_attention_for_cpu_backward"].flops == 2 * 2 * 3 * 7 * 7 * (5 * 8)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "op",
    [
        "_flash_attention", "_efficient_attention", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu",
    ],
)  # fmt: skip
def test_attention_equals_torchs_formula(op: str, backward: bool) -> None:
    q, k = (2, 3, 7, 8), (2, 3, 9, 8)  # samples, heads, length, width
    heads_first = op.startswith("_scaled")
    forward = op if heads_first else f"{op}_forward"
    dims = [list(s) if heads_first else [s[0], s[2], s[1], s[3]] for s in (*[q] * (1 + backward), k, k)]
    result = cost(f"aten::{op}_backward" if backward else f"aten::{forward}", dims, ["float"] * len(dims))
    count = flop_counter.sdpa_backward_flop_count(q, q, k, k) if backward else flop_counter.sdpa_flop_count(q, k, k)
    assert result.flops == count
    assert result.family is OpFamily.ATTENTION


def test_causal_attention_counts_the_visible_pairs_only() -> None:
    dims, types = [[1, 1, 4, 8]] * 3, ["float"] * 3 + ["Scalar", "Scalar"]
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    full, causal = (cost(name, [*dims, [], []], types, ["", "", "", "0.", flag]) for flag in ("False", "True"))
    assert full.flops == 2 * 16 * (8 + 8)
    assert causal.flops == 2 * 10 * (8 + 8)  # 1 + 2 + 3 + 4 of 16 pairs
    dims[0] = [1, 1, 2, 8]  # two queries: the first two, or in FlashAttention 2.1 the last two
    arguments = [*dims, [], []], types, ["", "", "", "0.", "True"]
    assert [cost(op, *arguments).flops for op in (name, name.removesuffix("_for_cpu"))] == [32 * (1 + 2), 32 * (3 + 4)]


def test_packed_attention_is_unknown_because_lengths_are_data() -> None:
    result = cost("aten::_flash_attention_forward", [[99, 4, 8]] * 3 + [[5], [5]], ["c10::Half"] * 3 + ["int", "int"])
    assert math.isnan(result.flops) and math.isnan(result.bytes)
    assert result.family is OpFamily.ATTENTION


@pytest.mark.parametrize(
    ("dims", "flops", "result"),
    [([[6, 4], [3, 4, 5], [3]], 2 * 6 * 4 * 5, 6 * 5), ([[3, 6, 4], [4, 9], [3]], 2 * 6 * 4 * 9, 6 * 9),
     ([[6, 8], [8, 5], [2]], 2 * 6 * 8 * 5, 2 * 6 * 5), ([[3, 6, 4], [3, 4, 5], []], 2 * 3 * 6 * 4 * 5, 3 * 6 * 5)],
    ids=["rows", "columns", "sums", "batched"],
)  # fmt: skip
def test_groups_of_a_product_divide_one_axis(dims: list, flops: float, result: int) -> None:
    counted = cost("aten::_grouped_mm", dims, ["c10::BFloat16", "c10::BFloat16", "int" if dims[2] else ""])
    assert counted.flops == flops and counted.family is OpFamily.GEMM
    assert counted.bytes == 2 * (math.prod(dims[0]) + math.prod(dims[1]) + result)


def test_matrices_of_groups_without_a_row_are_not_read() -> None:
    counted = cost("aten::_grouped_mm", [[2, 4], [64, 4, 5], [64]], ["c10::BFloat16", "c10::BFloat16", "int"])
    assert (counted.flops, counted.bytes) == (2 * 2 * 4 * 5, 2 * (2 * 4 + 2 * 4 * 5 + 2 * 5))


def test_groups_whose_number_is_not_recorded_have_no_cost() -> None:
    assert math.isnan(cost("aten::_grouped_mm", [[6, 8], [8, 5], []], ["c10::BFloat16"] * 2 + [""]).flops)


BYTES: dict[str, tuple[str, list, list[str] | None, list[str] | None, float]] = {  # call -> bytes
    "mm reads both, writes the result": (
        "aten::mm", [[3, 4], [4, 5]], ["c10::Half", "c10::Half"], ["", ""], 2 * (12 + 20 + 15)),
    "scaled mm writes 16 bits": ("aten::_scaled_mm", [[3, 4], [4, 5], [], []],
                                 ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2, None, 12 + 20 + 2 * 15),
    "int mm writes 32 bits": ("aten::_int_mm", [[3, 4], [4, 5]], ["signed char"] * 2, None, 12 + 20 + 4 * 15),
    "group norm writes statistics": ("aten::native_group_norm", [[2, 4, 3], [4], [4], *[[]] * 5], ["float"] * 3,
                                     [""] * 6 + ["2", ""], 4 * (3 * 24 + 8 + 2 * 2 * 2)),
    "group norm of too many groups": ("aten::native_group_norm", [[2, 4, 3], [4], [4], *[[]] * 5], ["float"] * 3,
                                      [""] * 6 + ["9", ""], 4 * (3 * 24 + 8)),
    "addmm reads its bias": ("aten::addmm", [[5], [3, 4], [4, 5]], ["float"] * 3, None, 4 * (5 + 12 + 20 + 15)),
    "add": ("aten::add", [[3, 4], [3, 4], []], ["float", "float", "Scalar"], None, 4 * 36),
    "add_ in place": ("aten::add_", [[3, 4], [3, 4], []], ["float", "float", "Scalar"], None, 4 * 36),
    "add broadcasts": ("aten::add", [[3, 1], [4], []], ["float", "float", "Scalar"], None, 4 * (3 + 4 + 12)),
    "mul by a 0-dim double keeps the dtype": (
        "aten::mul", [[3, 4], []], ["c10::BFloat16", "double"], None, 2 * 24 + 8),
    "comparison writes bool": ("aten::eq", [[3, 4], []], ["float", "Scalar"], None, 4 * 12 + 12),
    "where": ("aten::where", [[12], [12], [12]], ["bool", "float", "float"], None, 12 + 3 * 48),
    "out= is not read": ("aten::clamp_min", [[8], [], [8]], ["float", "Scalar", "float"], None, 64),
    "fill_": ("aten::fill_", [[8], []], ["float", "Scalar"], None, 32),
    "copy_ between dtypes": ("aten::copy_", [[8], [8], []], ["c10::Half", "float", "Scalar"], None, 16 + 32),
    "clone": ("aten::clone", [[8], []], ["long int", "Scalar"], None, 128),
    "cat": ("aten::cat", [[[2, 3], [4, 3]], []], ["TensorList", "Scalar"], ["", "0"], 2 * 4 * 18),
    "index_select": ("aten::index_select", [[10, 6], [], [4]], ["float", "Scalar", "long int"], ["", "0", ""],
                     4 * 8 + 2 * 4 * 24),
    "gather": ("aten::gather", [[10], [], [4], []], ["float", "Scalar", "long int", "Scalar"], None, 32 + 2 * 16),
    "index with a full slice": ("aten::index", [[5, 6], [[], [4]]], ["float", "TensorList"], None, 4 * 8 + 2 * 4 * 20),
    "embedding": ("aten::embedding", [[100, 16], [8]], ["float", "long int"], None, 64 + 2 * 4 * 128),
    "embedding_bag": ("aten::_embedding_bag", [[100, 16], [40], [8]], ["float", "long int", "long int"], None,
                      8 * 48 + 4 * 16 * (40 + 8)),
    "embedding_dense_backward": ("aten::embedding_dense_backward", [[8, 16], [8], [], [], []],
                                 ["float", "long int", "Scalar", "Scalar", "Scalar"], ["", "", "100", "-1", "False"],
                                 64 + 3 * 512 + 4 * 1600),
    "softmax": ("aten::_softmax", [[4, 8], [], []], ["float", "Scalar", "Scalar"], ["", "-1", "False"], 2 * 128),
    "softmax half to float": ("aten::_softmax", [[4, 8], [], []], ["c10::Half", "Scalar", "Scalar"],
                              ["", "-1", "True"], 64 + 128),
    "layer norm": ("aten::native_layer_norm", [[4, 8], [], [8], [8], []],
                   ["float", "ScalarList", "float", "float", "Scalar"], None, 2 * 128 + 64),
    "apex's layer norm": ("FusedLayerNormAffineFunction", [[4, 8], [8], [8], []], ["float"] * 3 + ["ScalarList"], None,
                          2 * 128 + 64),
    "its gradient is given the result's only": (
        "FusedLayerNormAffineFunctionBackward", [[4, 8]], ["float"], None, 5 * 128),
    "batch norm reads twice": ("aten::native_batch_norm", [[2, 3, 4], [3], [3], [3], [3], []],
                               ["float"] * 5 + ["Scalar"], ["", "", "", "", "", "True"], 3 * 96 + 4 * 12),
    "batch norm in evaluation reads once": ("aten::native_batch_norm", [[2, 3, 4], [3], [3], [3], [3], []],
                                            ["float"] * 5 + ["Scalar"], ["", "", "", "", "", "False"], 2 * 96 + 4 * 12),
    "sum over an axis": ("aten::sum", [[4, 8], [], []], ["float", "ScalarList", "Scalar"], ["", "[1]", "False"],
                         128 + 16),
    "sum of all": ("aten::sum", [[4, 8], []], ["float", ""], ["", ""], 128 + 4),
    "max pool": ("aten::max_pool2d_with_indices", [[1, 2, 4, 4], [], [], [], [], []],
                 ["float"] + ["ScalarList"] * 4 + ["Scalar"], ["", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"],
                 128 + 8 * 12),
    "upsample backward": ("aten::upsample_bilinear2d_backward", [[1, 2, 4, 4], [], [], [], [], []],
                          ["float"] + [""] * 5, ["", "[4, 4]", "[1, 2, 2, 2]"], 4 * 32 + 4 * 8),
    "foreach add_": ("aten::_foreach_add_", [[[4], [6]], [[4], [6]], []], ["TensorList", "TensorList", "Scalar"], None,
                     3 * 40),
    "fused adam reads four lists, writes three": (
        "aten::_fused_adam_", [[[10]], [[10]], [[10]], [[10]], [], [[]]], ["TensorList"] * 6, None, 7 * 40),
    "mse_loss": ("aten::mse_loss", [[8], [8], []], ["float", "float", "Scalar"], None, 64 + 4),
    "fused pointwise kernel touches its buffers": (
        "triton_poi_fused_add_8", [[8], [8], [8], []], ["float"] * 3 + ["Scalar"], None, 96),
}  # fmt: skip


@pytest.mark.parametrize("case", BYTES)
def test_bytes_by_hand(case: str) -> None:
    name, dims, types, values, expected = BYTES[case]
    assert cost(name, dims, types, values).bytes == expected


def test_fbgemm_lookup_by_hand() -> None:
    dims = [[0], [1000], [0], [0, 0], [2], [2], [3], [], [], [3], [], [30], [9]]
    types = ["float", "c10::Half", "c10::Half", "c10::Half", "int", "long", "int", "Scalar", "Scalar", "long", "Scalar",
             "long", "long"]  # fmt: skip
    name = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
    known = cost(name, dims, types, [""] * 7 + ["24"] + [""] * 5)  # 2 tables, batch 4, total dimension 24
    assert known.bytes == 8 * (30 + 9) + 30 * 12 * 2 + 4 * 24 * 4
    unknown = cost(name, dims, types)
    assert math.isnan(unknown.bytes) and unknown.family is OpFamily.EMBEDDING


# --- what is not known is never zero, and nothing that a trace can hold raises ----------------------------------------


def test_views_and_allocations_cost_a_true_zero() -> None:
    for name in ("aten::view", "aten::transpose", "aten::empty", "aten::detach", "detach", "aten::to"):
        result = cost(name, [[4, 8], []], ["float", "ScalarList"])
        assert (result.flops, result.bytes, result.family) == (0.0, 0.0, OpFamily.VIEW)


@pytest.mark.parametrize(
    "name",
    [
        "autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "Optimizer.step#Adam.step",
        "CompiledFunction", "torch::autograd::AccumulateGrad", "my_extension::frobnicate", "aten::not_an_op", "",
    ],
)  # fmt: skip
def test_ops_without_a_formula_are_unknown_never_zero(name: str) -> None:
    result = cost(name, [[4, 4]], ["float"])
    assert math.isnan(result.flops) and math.isnan(result.bytes)
    assert result.family is OpFamily.UNKNOWN


def test_collectives_are_named_but_not_costed() -> None:
    for name in ("record_param_comms", "c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce"):
        result = cost(name, [[4, 4]], ["float"])
        assert result.family is OpFamily.COLLECTIVE and math.isnan(result.bytes)


def test_missing_dtypes_and_strides_are_assumed() -> None:
    result = cost("aten::cudnn_convolution", [[32, 256, 14, 14], [1024, 256, 1, 1], [], [], []], [])
    assert result.dtype is None
    assert result.flops == 2.0 * 32 * 1024 * 14 * 14 * 256


def test_weight_gradient_without_a_kernel_size_is_unknown_but_its_parent_knows() -> None:
    child = cost("aten::cudnn_convolution_backward_weight", [[], [32, 64, 56, 56], [32, 64, 56, 56]])
    parent = cost("aten::cudnn_convolution_backward", [[32, 64, 56, 56], [32, 64, 56, 56], [64, 64, 3, 3]])
    assert math.isnan(child.flops) and math.isnan(child.bytes)
    assert parent.flops == 2.0 * 32 * 64 * 56 * 56 * 64 * 9


@pytest.mark.parametrize(
    ("dims", "types", "values"),
    [
        (None, None, None), ("", "", ""), ("[]", "[]", "[]"), ("not json", None, None), ("{}", "{}", "{}"),
        ("[[2,3],[4,5]]", '["float","float"]', None), ("[[-1,3],[3,5]]", '["float","float"]', None),
        ("[[1e9,3],[3,5]]", '["float","float"]', None), ('["a",null]', "[1,2]", "[3]"), ("[[2,3]]", '["float"]', None),
    ],
)  # fmt: skip
def test_unusable_inputs_are_unknown(dims: str | None, types: str | None, values: str | None) -> None:
    result = op_cost("aten::mm", dims, types, values)
    assert math.isnan(result.flops) and math.isnan(result.bytes)
    assert result.family is OpFamily.GEMM


JSON_LISTS = st.lists(
    st.one_of(st.none(), st.text(max_size=4), st.integers(-2, 9), st.lists(st.integers(-2, 9), max_size=5),
              st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3)), max_size=12)  # fmt: skip
TYPES = st.lists(
    st.sampled_from(["float", "c10::Half", "long int", "Scalar", "ScalarList", "TensorList", "", "?"]), max_size=12
)
VALUES = st.lists(st.sampled_from(["", "1", "[2, 2]", "[]", "True", "False", "-1", "nan", "[1.5]", "{"]), max_size=12)


@given(st.sampled_from(supported_ops()), JSON_LISTS, TYPES, VALUES)
def test_no_input_raises_and_costs_are_never_negative(name: str, dims: list, types: list, values: list) -> None:
    result = cost(name, dims, types, values)
    assert result.flops >= 0 or math.isnan(result.flops)
    assert result.bytes >= 0 or math.isnan(result.bytes)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 8))
def test_a_longer_batch_never_costs_less(m: int, k: int, n: int, factor: int) -> None:
    small = cost("aten::bmm", [[2, m, k], [2, k, n]], ["float", "float"])
    large = cost("aten::bmm", [[2 * factor, m, k], [2 * factor, k, n]], ["float", "float"])
    assert large.flops == factor * small.flops and large.bytes == factor * small.bytes


def test_table_covers_what_it_states() -> None:
    names = supported_ops()
    assert len(names) == len(set(names)) > 300
    assert {"aten::mm", "aten::native_layer_norm_backward", "aten::_embedding_bag", "aten::_fused_adam_"} <= set(names)


# Share of kernel time whose op has a cost, on public traces with shapes (read with plain json, no other space).


TRACES = {  # file -> least share of linked, non-collective kernel time with a known cost
    "AMD-AGI+TraceLens/tests/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz": 0.999,
    "AMD-AGI+TraceLens/tests/traces/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz": 0.999,
    "AMD-AGI+TraceLens/tests/traces/h100/gaunernst_bert-small-uncased__1016001.json.gz": 0.999,
}


def kernel_time_by_cost(path: Path) -> tuple[float, float]:
    """(known, all) us of kernels whose file names their op by a true external id."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ops = {e["args"].get("External id"): e for e in events if e.get("cat") == "cpu_op"}
    time: dict[bool, float] = defaultdict(float)
    for event in events:
        op = ops.get(event.get("args", {}).get("External id")) if event.get("cat") == "kernel" else None
        if op is None:
            continue
        texts = (json.dumps(op["args"].get(k)) for k in ("Input Dims", "Input type", "Concrete Inputs"))
        result = op_cost(op["name"], *texts)
        if result.family is not OpFamily.COLLECTIVE:
            time[not (math.isnan(result.flops) and math.isnan(result.bytes))] += float(event["dur"])
    return time[True], time[True] + time[False]


@pytest.mark.mirror
@pytest.mark.parametrize("name", TRACES)
def test_kernel_time_with_a_known_cost(name: str, mirror: Path) -> None:
    known, total = kernel_time_by_cost(mirror / name)
    assert total > 0
    assert known / total >= TRACES[name]
