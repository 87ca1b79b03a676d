"""Rows of an op table that reach forms of their own: sparse weights, 2:4, attention by its parts, chains, lookups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from gnnperf.analytic.embedding.counted_access import ReuseDistances
from gnnperf.analytic.embedding.model import zipf_access
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.op_tables import Answer, OpRow, answer_rows, read_op_rows
from gnnperf.analytic.op_tables.decomposition import UNFUSED_ATTENTION, backward_calls, forward_calls, gradient_calls
from gnnperf.analytic.op_tables.predict import Reason
from gnnperf.analytic.op_tables.signatures import recorded_call
from gnnperf.core.errors import InputError
from gnnperf.hardware.catalog import load_device

H100, CPU = load_device("h100_sxm"), load_device("cpu_generic")
LINEAR = {"op": "aten::linear", "shapes": [[64, 4096], [4096, 4096], None], "dtype": "bfloat16"}
BAG = {"op": "aten::embedding_bag", "shapes": [[1_000_000, 64], [65_536], [2048]],
       "dtypes": ["float32", "int64", "int64"]}  # fmt: skip
HISTOGRAM = [30_000, 8_000, 3_000, 1_000, 0, 0]  # once, twice, 3 to 4, 5 to 8 times


def rows_of(tmp_path: Path, *entries: dict[str, Any]) -> tuple[OpRow, ...]:
    path = tmp_path / "ops.jsonl"
    path.write_text("\n".join(json.dumps(e) for e in entries))
    return read_op_rows(path)[1]


def answers(tmp_path: Path, *entries: dict[str, Any]) -> list[float]:
    result = answer_rows(rows_of(tmp_path, *entries), H100)
    assert all(a.reason is None and a.bound in ("compute", "memory", "launch") for a in result)
    return [a.latency_us or 0.0 for a in result]


# --- sparse weights


def test_a_sparse_weight_costs_what_is_stored(tmp_path: Path) -> None:
    (dense, blocks, values) = rows_of(
        tmp_path, LINEAR, {**LINEAR, "density": 0.25, "block": 64}, {**LINEAR, "density": 0.25}
    )
    whole, in_blocks, one_by_one = map(recorded_call, (dense, blocks, values))
    retained, elements = 4096 * 1024, 4096 * 4096
    assert whole.flops == 2 * 64 * elements
    assert in_blocks.flops == one_by_one.flops == 2 * 64 * retained
    assert in_blocks.moved_bytes == whole.moved_bytes - 2 * (elements - retained) + 8 * (retained / 64**2 + 64 + 1)
    assert one_by_one.moved_bytes == whole.moved_bytes - 2 * (elements - retained) + 8 * (retained + 4096 + 1)


def test_blocks_help_and_single_values_do_not(tmp_path: Path) -> None:
    large = {**LINEAR, "shapes": [[8192, 4096], [4096, 4096], None]}
    whole, blocks, values = answers(
        tmp_path, large, {**large, "density": 0.25, "block": 64}, {**large, "density": 0.25}
    )
    assert blocks < 0.5 * whole < whole < values


def test_density_is_a_column_of_csv_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"op": "aten::mm", "shapes": "[[64, 64], [64, 64]]", "dtype": "float16",
                          "density": [0.5, None], "block": [16, None]})  # fmt: skip
    frame.to_csv(tmp_path / "ops.csv", index=False)
    sparse, dense = read_op_rows(tmp_path / "ops.csv")[1]
    assert sparse.sparsity is not None and (sparse.sparsity.density, sparse.sparsity.block) == (0.5, 16)
    assert dense.sparsity is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": "aten::bmm", "density": 0.5}, "row 1: density of aten::bmm. Allowed: aten::mm, aten::addmm"),
        ({"op": "aten::gelu", "block": 16}, "block of aten::gelu"),
        ({"density": 0.0}, "density is 0.0. Allowed: above 0, below 1"),
        ({"density": 1}, "density is 1"),
        ({"density": "half"}, "density is 'half'"),
        ({"block": 16}, "density is None"),
        ({"density": 0.5, "block": 3}, "block is 3. Allowed: an edge that divides 4096 and 4096"),
        ({"density": 0.5, "block": True}, "block is True"),
        ({"density": 0.5, "shapes": [[64, 64]]}, "a sparse operand of shape None"),
    ],
)
def test_bad_sparsity_is_refused_by_name(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(tmp_path, {**LINEAR, **change})


def test_sparse_rows_without_ground_say_why(tmp_path: Path) -> None:
    sparse = {**LINEAR, "density": 0.5, "block": 16}
    rows = rows_of(tmp_path, sparse, {**sparse, "direction": "backward"})
    assert [a.reason for a in answer_rows(rows, H100)] == [None, Reason.GRADIENT]
    assert answer_rows(rows[:1], CPU) == (Answer(reason=Reason.SPARSE_ON_CPU),)


def test_two_of_four_has_ops_of_its_own(tmp_path: Path) -> None:
    m, k, n = 4096, 4096, 8192
    types = ["bfloat16", "bfloat16", "int16"]
    dense, linear, packed = answers(
        tmp_path,
        {"op": "aten::mm", "shapes": [[m, k], [k, n]], "dtype": "bfloat16"},
        {"op": "aten::_sparse_semi_structured_linear", "shapes": [[n, k], [m, k // 2], [m, k // 16]], "dtypes": types},
        {"op": "aten::_cslt_sparse_mm", "shapes": [[m, k * 9 // 16], [k, n], None], "dtype": "bfloat16"},
    )
    assert linear == pytest.approx(packed) == pytest.approx(dense / 2, rel=0.05)
    rows = rows_of(tmp_path, {"op": "aten::_cslt_sparse_mm", "shapes": [[m, 2304], [k, n]], "dtype": "bfloat16"})
    assert answer_rows(rows, CPU)[0].reason == Reason.SPARSE_ON_CPU


# --- attention that is not fused

NOT_WORK = ("aten::empty", "aten::as_strided", "aten::view", "aten::to", "aten::scalar_tensor", "aten::resolve_conj",
            "aten::_unsafe_view", "aten::_reshape_alias", "aten::tril", "aten::fill_", "aten::copy_", "aten::expand",
            "aten::empty_strided", "aten::transpose", "aten::reshape", "aten::_to_copy", "aten::matmul",
            "aten::_safe_softmax", "aten::softmax", "aten::clone", "aten::select", "aten::detach", "aten::zeros",
            "aten::ones", "aten::zero_", "aten::empty_like")  # fmt: skip


def attention(**more: Any) -> OpRow:
    return OpRow(UNFUSED_ATTENTION, ((2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 8)), ("float32",) * 3, **more)


def recorded_work(arguments: dict[str, Any], masked: bool) -> list[tuple[str, int]]:
    """Ops that torch runs, and elements of their first tensor."""
    q, k, v = (torch.zeros(shape) for shape in ((2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 8)))
    mask = torch.zeros(16, 32) if masked else None
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as result:
        torch.ops.aten._scaled_dot_product_attention_math(q, k, v, mask, **arguments)
    inside = [
        e for e in result.events() if e.name.startswith("aten::") and e.name not in (*NOT_WORK, UNFUSED_ATTENTION)
    ]
    return [(e.name, torch.Size(e.input_shapes[0]).numel()) for e in inside]


@pytest.mark.parametrize("masked", [True, False])
def test_the_parts_of_unfused_attention_are_what_torch_runs(masked: bool) -> None:
    shapes = (*attention().shapes, (16, 32)) if masked else attention().shapes
    calls = forward_calls(OpRow(UNFUSED_ATTENTION, shapes, ("float32",) * len(shapes)))
    parts = [(c.op_name, c.parsed().tensor(0).numel) for c in calls]
    assert sorted(parts) == sorted(recorded_work({}, masked))
    assert [name for name, _ in parts if name == "aten::add_"] == (["aten::add_"] if masked else [])


def test_backward_takes_four_products_and_every_part_has_a_cost() -> None:
    row = attention(arguments={"dropout_p": 0.1, "is_causal": True})
    forward, backward = forward_calls(row), backward_calls(row)
    assert [c.op_name for c in backward].count("aten::bmm") == 4
    assert {c.flops for c in backward if c.op_name == "aten::bmm"} == {2.0 * 8 * 16 * 32 * 8}
    assert {"aten::native_dropout", "aten::add_"} <= {c.op_name for c in forward}
    assert all(c.moved_bytes > 0 for c in (*forward, *backward))
    assert gradient_calls(row) == backward


def test_a_row_of_unfused_attention_is_the_sum_of_its_parts() -> None:
    long = OpRow(UNFUSED_ATTENTION, ((8, 16, 2048, 64),) * 3, ("bfloat16",) * 3)
    fused = OpRow("aten::scaled_dot_product_attention", long.shapes, long.dtypes)
    unfused_answer, fused_answer = answer_rows([long, fused], H100)
    assert unfused_answer.latency_us == pytest.approx(kernel_times(forward_calls(long), H100, 4.0).latency_us.sum())
    assert unfused_answer.bound == "memory" and fused_answer.bound == "compute"  # the scores are written and read
    assert unfused_answer.latency_us is not None and fused_answer.latency_us is not None
    assert unfused_answer.latency_us > 4 * fused_answer.latency_us
    assert answer_rows([long], CPU)[0].latency_us is not None


@pytest.mark.parametrize("shapes", [((2, 4, 16, 8), (2, 2, 32, 8), (2, 2, 32, 8)), ((2, 4, 16, 8),), ((16, 8),) * 3])
def test_attention_of_other_shapes_states_so(shapes: tuple[tuple[int, ...], ...]) -> None:
    (answer,) = answer_rows([OpRow(UNFUSED_ATTENTION, shapes, ("float32",) * len(shapes))], H100)
    assert answer.reason == Reason.SHAPES


# --- fused chains


def test_a_fused_chain_is_a_row_of_buffers(tmp_path: Path) -> None:
    buffer = [4096, 4096]
    fused, *isolated = answers(
        tmp_path,
        {"op": "triton_poi_fused_add_mul_relu_0", "shapes": [buffer] * 4, "dtype": "float32"},
        *({"op": op, "shapes": shapes, "dtype": "float32"}
          for op, shapes in (("aten::add", [buffer] * 2), ("aten::mul", [buffer] * 2), ("aten::relu", [buffer]))),
    )  # fmt: skip
    assert fused == pytest.approx(sum(isolated) * 4 / 8, rel=0.05)  # 4 buffers instead of 8 tensors moved


# --- lookups


def test_which_rows_are_requested_for(tmp_path: Path) -> None:
    zipf, distances = rows_of(
        tmp_path, {**BAG, "zipf": 1.1}, {**BAG, "reuse_distances": [[100, 60_000], [None, 5_536]], "cache": "warm"}
    )
    expected = zipf_access(pd.Series([1e6]).to_numpy(), pd.Series([1.1]).to_numpy())
    assert zipf.access.counted is not None
    assert zipf.access.counted.unique(pd.Series([65_536.0]).to_numpy()) == pytest.approx(
        expected.unique(pd.Series([65_536.0]).to_numpy())
    )
    assert isinstance(distances.access.counted, ReuseDistances)
    assert distances.access.counted.lookups.tolist() == [60_000, 5_536] and distances.access.warm


def test_reuse_makes_lookups_faster(tmp_path: Path) -> None:
    lookups = sum((30_000, 2 * 8_000, 4 * 3_000, 7 * 1_000))
    bag = {**BAG, "shapes": [[1_000_000, 64], [lookups], [1000]]}
    uniform, counted, zipf, near = answers(
        tmp_path, bag, {**bag, "reuse_histogram": HISTOGRAM}, {**bag, "zipf": 1.2},
        {**bag, "reuse_distances": [[10, lookups]]},
    )  # fmt: skip
    assert near < min(counted, zipf) < max(counted, zipf) < uniform
    backward = {**bag, "direction": "backward", "arguments": {"mode": 0}}
    slow, fast = answers(tmp_path, backward, {**backward, "reuse_histogram": HISTOGRAM})
    assert fast < slow  # the gradient of a table is looked up as the table was


def test_columns_that_calibrate_writes_in_every_row_are_for_lookups(tmp_path: Path) -> None:
    (mm,) = rows_of(tmp_path, {**LINEAR, "skew": 1.0, "tables": 1, "cache": "flushed"})
    (bag,) = rows_of(tmp_path, {**BAG, "skew": 4.0, "tables": 4, "cache": "warm"})
    assert mm.access == OpRow("aten::mm").access
    assert (bag.access.skew, bag.access.tables, bag.access.warm) == (4.0, 4.0, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zipf": -1}, "row 1: zipf is -1. Allowed: an exponent from 0"),
        ({"zipf": "hot"}, "zipf is 'hot'"),
        ({"zipf": 1.0, "skew": 2.0}, "zipf and skew. Allowed: one column"),
        ({"zipf": 1.0, "reuse_histogram": HISTOGRAM}, "zipf and reuse_histogram"),
        ({"reuse_histogram": []}, r"reuse_histogram is \[\]"),
        ({"reuse_histogram": [0, 0]}, "reuse_histogram is"),
        ({"reuse_histogram": [10.0, -1]}, "reuse_histogram is"),
        ({"reuse_histogram": "[1,"}, "row 1, reuse_histogram: is not JSON"),
        ({"reuse_histogram": [10]}, "holds 10 rows and 10 to 10 lookups. Allowed: of 65536 indices into 1e[+]06 rows"),
        ({"reuse_distances": [[0, 5]]}, "reuse_distances is"),
        ({"reuse_distances": [5]}, "reuse_distances is"),
        ({"reuse_distances": [[3, 0]]}, "reuse_distances holds no lookups"),
        ({"skew": 0}, "skew is 0"),
        ({"tables": "many"}, "tables is 'many'"),
        ({"cache": "cold"}, "cache is 'cold'. Allowed: warm, flushed"),
        ({"op": "aten::mm", "zipf": 1.0}, "zipf of aten::mm. Allowed: aten::embedding"),
        ({"zipf": 1.0, "shapes": [None, [5], [1]]}, "name no table"),
    ],
)
def test_bad_access_is_refused_by_name(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(tmp_path, {**BAG, **change})


def test_calls_that_say_nothing_are_uniform_and_cold() -> None:
    assert KernelCall("aten::mm", None, None, "gemm", 1.0, 1.0).access == OpRow("aten::mm").access
