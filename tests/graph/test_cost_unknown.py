"""What is not known is never zero, and nothing that a trace can hold raises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.schema import OpFamily
from gnnperf.graph.cost import op_cost, supported_ops
from tests.graph.op_calls import cost


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


def test_missing_dtypes_and_strides_are_assumed_aloud() -> None:
    result = cost("aten::cudnn_convolution", [[32, 256, 14, 14], [1024, 256, 1, 1], [], [], []], [])
    assert result.dtype is None
    assert set(result.assumed) == {"dtype float32", "convolution stride 1, same padding"}
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
