"""Counts of CPU ops by hand, and that more work never counts less."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.cpu.counts import COUNTS, KEYS, between_bytes, op_counts, paid_families
from gnnperf.graph.cost import op_cost


def call(name: str, dims: list[object], values: list[str] | None = None) -> dict[str, object]:
    """A call as a graph holds it."""
    text, types = json.dumps(dims, separators=(",", ":")), json.dumps(["float" if d else "" for d in dims])
    cost = op_cost(name, text, types, None if values is None else json.dumps(values))
    return {"op_name": name, "input_dims": text, "dtype": "float32", "family": str(cost.family), "flops": cost.flops,
            "bytes": cost.bytes, "between_bytes": 0.0}  # fmt: skip


def counts(*calls: dict[str, object]) -> list[dict[str, float]]:
    """Counts that are not 0."""
    result = op_counts(pd.DataFrame(list(calls), columns=KEYS))
    return [{name: float(value) for name, value in zip(COUNTS, row, strict=True) if value} for row in result]


def small(result: dict[str, float]) -> dict[str, float]:
    """Without the shares beyond the caches, which are next to nothing for small ops that run again at once."""
    assert result.get("far_byte", 0.0) < 1e-6 and result["cold_call"] < 1e-5
    return {name: value for name, value in result.items() if name not in ("far_byte", "cold_call")}


def test_a_product() -> None:
    (result,) = counts(call("aten::mm", [[4, 8], [8, 2]]))
    assert small(result) == {"call": 1, "row": 4, "flop": 2 * 4 * 8 * 2, "left": 32, "right": 16, "result": 8}


@pytest.mark.parametrize(
    ("name", "dims", "product", "rows"),
    [
        ("aten::bmm", [[3, 4, 8], [3, 8, 2]], 2, 12),
        ("aten::linear", [[5, 4, 8], [2, 8], [2]], 0, 20),
        ("aten::addmm", [[2], [4, 8], [8, 2]], 0, 4),
    ],
)
def test_kinds_of_products(name: str, dims: list[object], product: float, rows: float) -> None:
    (result,) = counts(call(name, dims))
    assert (result.get("product", 0.0), result["row"]) == (product, rows)


def test_a_recurrent_layer_is_one_product_of_inputs_and_one_of_the_state_per_step() -> None:
    """3 steps of 2 samples, 4 inputs, 2 states, 8 gates."""
    dims: list[object] = [[3, 2, 4], [8, 4], [8, 2], [8], [8], [2, 2], [2, 2]]
    (layer,) = counts(call("aten::mkldnn_rnn_layer", dims))
    assert small(layer) == {"call": 1, "product": 3, "row": 12, "flop": 2 * 6 * 48 + 120, "left": 6 * (4 + 2),
                            "right": 4 * 8 + 3 * 2 * 8, "result": 2 * 6 * 8}  # fmt: skip
    (gradient,) = counts(call("aten::mkldnn_rnn_layer_backward", dims))
    assert [gradient[name] / layer[name] for name in ("product", "row", "left", "right", "result")] == [2] * 5


def test_rows_of_a_grouped_product_are_divided_among_its_matrices() -> None:
    known = {"family": "gemm", "flops": 4096.0, "bytes": 10.0}
    (result,) = counts(call("aten::_grouped_mm", [[16, 8], [4, 8, 16], [4], [], []]) | known)
    assert (result["flop"], result["left"], result["right"], result["result"]) == (4096, 16 * 8, 4 * 8 * 16, 16 * 16)


def test_a_scatter_pays_by_the_element() -> None:
    known = {"family": "indexing", "flops": 0.0, "bytes": 10.0}
    (result,) = counts(call("aten::scatter", [[4, 8], [], [20, 8], []]) | known)
    assert small(result) == {"call": 1, "element": 160, "byte": 10}


def test_a_stack_is_its_layers_whichever_dimension_comes_first() -> None:
    known = {"family": "gemm", "flops": 100.0, "bytes": 10.0}
    states, weights = [[2, 2, 2], [2, 2, 2]], [[8, 4], [8, 2], [8], [8], [8, 2], [8, 2], [8], [8]]
    for x in ([3, 2, 4], [2, 3, 4]):
        (stack,) = counts(call("aten::lstm", [x, states, weights]) | known)
        assert (stack["product"], stack["row"], stack["flop"]) == (6, 24, 100)
        assert stack["right"] == (4 * 8 + 3 * 2 * 8) + (2 * 8 + 3 * 2 * 8)
    (one,) = counts(call("aten::gru", [[3, 2, 4], [1, 2, 2], [[6, 4], [6, 2]]]) | known)
    assert one["product"] == 3
    (unknown,) = counts(call("aten::gru", [[3, 2, 4], [1, 2, 2], []]) | known)
    assert small(unknown) == {"call": 1, "flop": 100, "byte": 10}


def test_softmax_and_norms_finish_rows() -> None:
    softmax, layer, group, batch = counts(
        call("aten::_softmax", [[5, 4, 8], [], []]), call("aten::layer_norm", [[5, 4, 8], [], [8], [8], []]),
        call("aten::group_norm", [[5, 4, 8, 3], [], [4], [4], []]), call("aten::batch_norm", [[5, 4], [4], [4]]),
    )  # fmt: skip
    # channels of 8 x 3 pixels in a group norm; features without pixels have no rows
    assert (softmax["row"], layer["row"], group["row"], batch.get("row", 0)) == (20, 20, 20, 0)


@pytest.mark.parametrize(
    ("dims", "rows"),
    [("[1, 2]", 6), ("[0]", 0), ("[2]", 30), ("[]", 1)],  # of [6, 5, 8]: 6 rows of 40, 40 sums over 6, 30 rows of 8
)
def test_inner_reductions_finish_rows(dims: str, rows: float) -> None:
    (result,) = counts(call("aten::sum", [[6, 5, 8], [], []], ["", dims, "False"]))
    assert (result.get("row", 0.0), result["flop"]) == (rows, 240)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (call("aten::topk", [[6, 8], [], []]), {"call": 1, "element": 4 * 48}),  # sorting is no pass over rows
        (call("aten::bernoulli", [[100]]), {"call": 1, "draw": 100}),  # random numbers cost by the number
        (call("aten::add", [[8], [], []], [""] * 3), {"call": 1, "tensor": 1, "flop": 8, "byte": 64}),  # a number
        (call("my::op", [[4, 8], [[8, 2]]]) | {"family": "gemm", "flops": 5.0, "bytes": 3.0},
         {"call": 1, "flop": 5, "byte": 3}),  # a list where a product has a matrix is no product
    ],
)  # fmt: skip
def test_counts_of_one_call(row: dict[str, object], expected: dict[str, float]) -> None:
    (result,) = counts(row)
    assert small(result) == expected


def test_an_op_that_ran_just_now_is_warm_and_one_after_half_a_megabyte_is_half_cold() -> None:
    relu = call("aten::relu", [[8]])
    result = counts(*(relu | {"between_bytes": between} for between in (0.0, 2.0**19, 1e12)))
    assert [row["cold_call"] for row in result] == pytest.approx([0.0, 0.5, 1.0], abs=1e-5)


def test_dropout_pays_for_the_numbers_it_draws() -> None:
    dropout = call("aten::relu", [[8]]) | {"op_name": "aten::dropout"}
    families = paid_families(pd.DataFrame([dropout, call("aten::relu", [[8]])]))
    assert families.tolist() == ["random", "elementwise"]


def test_convolutions_work_on_blocks_of_sixteen_channels() -> None:
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    (whole,), (part,) = (
        counts(call("aten::conv2d", [[2, c, 6, 6], [16, c, 3, 3], [], [], [], [], []], values)) for c in (16, 12)
    )
    assert whole["flop"] == 2 * 2 * 36 * 16 * 16 * 9
    assert part["flop"] == pytest.approx(whole["flop"])  # 12 channels take as long as 16


def test_a_depthwise_convolution_is_no_product() -> None:
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "16"]
    (result,) = counts(call("aten::conv2d", [[2, 16, 6, 6], [16, 1, 3, 3], [], [], [], [], []], values))
    assert (result["flop"], result["right"], result["tensor"]) == (2 * 2 * 36 * 16 * 9, 16 * 9, 1)
    assert "product" not in result and "lane_flop" not in result


@pytest.mark.parametrize(
    ("dims", "lanes"),  # FLOPs of single lanes, of all
    [
        ([[2, 16, 2, 2], [8, 16, 1, 1]], 1.0),  # 4 pixels fill no vector
        ([[2, 16, 4, 4], [8, 4, 3, 3]], 2.0),  # 4 channels of a group: half of the lanes idle
        ([[2, 8, 2, 2, 2], [2, 16, 4, 4, 4], [8, 16, 3, 3, 3]], 0.5),  # the input's gradient of a volume, stride 2
        ([[2, 16, 6, 6], [2, 16, 6, 6], [16, 1, 5, 5]], 1.0),  # plane by plane
    ],
)
def test_what_fills_no_vector_goes_lane_by_lane(dims: list[Any], lanes: float) -> None:
    small, passes = dims[0], len(dims) - 1
    flops = passes * 2.0 * small[0] * np.prod(dims[-1]) * np.prod(small[2:])
    op_name = "aten::conv2d" if passes == 1 else "aten::convolution_backward"
    known = {"op_name": op_name, "family": "conv", "flops": flops, "bytes": 10.0}
    (result,) = counts(call("aten::relu", [*dims, [], []]) | known)
    assert result.get("lane_flop", 0.0) == lanes * flops


def test_attention_with_dropout_draws_a_number_per_score() -> None:
    """2 samples, 3 heads, 7 queries of 8: products of all pairs also under a mask, which spares only long blocks."""
    dims: list[object] = [*[[2, 3, 7, 8]] * 3, *[[]] * 5]
    values = [["", "", "", "", *flags] for flags in (("0.", "False"), ("0.", "True"), ("0.1", "True"))]
    plain, causal, dropped = counts(*(call("aten::scaled_dot_product_attention", dims, v) for v in values))
    assert plain["flop"] == causal["flop"] == dropped["flop"] == 2 * 6 * 49 * 16
    assert plain["product"] == 6 and "draw" not in causal
    assert (dropped["draw"], dropped["tensor"]) == (6 * 49, 56)


def test_lookups_miss_by_the_size_of_the_table() -> None:
    small_table, large_table = counts(*(call("aten::embedding", [[rows, 16], [64]]) for rows in (100, 10_000_000)))
    assert small_table["row"] == large_table["row"] == 64
    assert small_table["element"] == 64 * 16
    assert small_table["missed_row"] < 0.01 and large_table["missed_row"] > 63


def test_a_sparse_sum_counts_its_rows() -> None:
    sparse = {"op_name": "aten::add_", "input_dims": "[[524288,4],[524288,4],[]]", "dtype": "float32",
              "family": "embedding", "flops": 48.0, "bytes": 294.0, "between_bytes": 0.0}  # fmt: skip
    (result,) = counts(sparse)
    assert (result["row"], result["element"], result["byte"]) == (6.0, 72.0, 6.0)
    assert result["missed_row"] == 6.0  # half of the rows, as 8 MiB are as large as the cache: read and written back


def test_an_optimizer_counts_its_tensors() -> None:
    (result,) = counts(call("aten::_fused_sgd_", [[[4], [2, 2]], [[4], [2, 2]], [], [], [], [], [], [], [], [], []]))
    assert result["tensor"] == 2


def test_what_is_not_known_has_no_counts() -> None:
    unknown = {"op_name": "my::op", "input_dims": None, "dtype": None, "family": "unknown", "flops": np.nan,
               "bytes": np.nan, "between_bytes": 0.0}  # fmt: skip
    assert np.isnan(op_counts(pd.DataFrame([unknown], columns=KEYS))).all()


@pytest.mark.parametrize(
    ("name", "dims", "family"),
    [
        ("aten::conv2d", "[[1,3,8,8],[8,0,3,3]]", "conv"),
        ("aten::conv2d", "[[1,3,8,8],null]", "conv"),
        ("aten::embedding", "[[],[3]]", "embedding"),
        ("aten::add_", None, "embedding"),
        ("aten::add_", "[[0,0],[0,0]]", "embedding"),
        ("aten::bmm", "[[0,4,8],[0,8,2]]", "gemm"),
        ("aten::mm", "[null,[8,2]]", "gemm"),
    ],
)
def test_shapes_without_sizes_count_as_streams_and_never_below_nothing(
    name: str, dims: str | None, family: str
) -> None:
    row = {"op_name": name, "input_dims": dims, "dtype": "float32", "family": family, "flops": 0.0, "bytes": 64.0,
           "between_bytes": 0.0}  # fmt: skip
    result = op_counts(pd.DataFrame([row], columns=KEYS))
    assert (result >= 0).all() and result[0, COUNTS.index("call")] == 1


sizes = st.integers(1, 300)


@given(st.tuples(sizes, sizes, sizes), st.integers(0, 2), st.integers(1, 50))
def test_a_larger_product_counts_no_less(shape: tuple[int, int, int], axis: int, more: int) -> None:
    larger = tuple(size + more * (place == axis) for place, size in enumerate(shape))
    rows = [call("aten::mm", [[m, k], [k, n]]) for m, n, k in (shape, larger)]
    before, after = op_counts(pd.DataFrame(rows, columns=KEYS))
    assert (after >= before).all() and after.sum() > before.sum()


@given(st.tuples(st.integers(1, 8), st.integers(5, 70), st.integers(1, 70), st.integers(3, 20)), st.integers(0, 3),
       st.integers(1, 20))  # fmt: skip
def test_a_larger_convolution_counts_no_less(shape: tuple[int, int, int, int], axis: int, more: int) -> None:
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    larger = tuple(size + more * (place == axis) for place, size in enumerate(shape))
    rows = [call("aten::conv2d", [[i, c, s, s], [o, c, 3, 3], [], [], [], [], []], values)
            for i, c, o, s in (shape, larger)]  # fmt: skip
    before, after = op_counts(pd.DataFrame(rows, columns=KEYS))
    assert (after >= before * (1 - 1e-12)).all()


def ops(*rows: tuple[str, float, int]) -> pd.DataFrame:
    """(op, bytes, rank), all on one thread of a rank."""
    names, moved, ranks = zip(*rows, strict=True)
    return pd.DataFrame({"op_name": names, "bytes": moved, "rank": ranks, "thread": 0})


def test_what_ran_in_between_counts_not_the_op_itself() -> None:
    """The first add comes after the mm that ends the window, which repeats."""
    result = between_bytes(ops(("add", 3.0, 0), ("mm", 10.0, 0), ("add", 5.0, 0), ("add", 1.0, 0), ("mm", 20.0, 0)))
    assert result.tolist() == [20.0, 3.0, 10.0, 0.0, 6.0]
    # ranks have caches of their own, and unknown bytes count nothing
    result = between_bytes(ops(("add", 1.0, 0), ("mm", 50.0, 1), ("mm", np.nan, 0), ("add", 1.0, 0)))
    assert result.tolist() == [0.0, 0.0, 2.0, 0.0]


def test_an_op_that_runs_once_comes_again_after_the_rest_of_the_window() -> None:
    assert between_bytes(ops(("mm", 4.0, 0), ("relu", 2.0, 0)))[0] == pytest.approx(2.0)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 1e9), st.integers(0, 1)), min_size=1))
def test_never_negative_and_at_most_the_window(rows: list[tuple[str, float, int]]) -> None:
    nodes = ops(*rows)
    whole = nodes.groupby("rank")["bytes"].transform("sum").to_numpy()
    result = between_bytes(nodes)
    assert (result >= 0).all() and (result <= whole * (1 + 1e-9)).all()
