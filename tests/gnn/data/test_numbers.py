"""Numeric features: sizes, shapes, links, text; docs/features.md lists them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster
from toys import make_graph, two_rank_graph

from docs.made.features import feature_page
from gnnperf.core import NUM_TEXT_FEATURES, WORK_FEATURES, NodeType, Relation, names
from gnnperf.gnn.data import numbers as figures
from gnnperf.gnn.data.vocabulary import FIELDS
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import LinkSpec, default_cluster, load_device

HARDWARE = cluster()


def numbers(graph: ExecutionGraph, analytic_us: float = np.nan) -> pd.DataFrame:
    estimate = np.full(graph.num_nodes, analytic_us)
    base = np.nan_to_num(estimate, nan=4.0)
    return pd.DataFrame(figures.work_numbers(graph, estimate, base, HARDWARE), columns=list(figures.WORK_NAMES))


def test_a_gemm_by_hand() -> None:
    row = numbers(two_rank_graph()).iloc[3]
    assert row["log_flops"] == pytest.approx(np.log1p(2 * 512**3))
    assert row["log_bytes"] == pytest.approx(np.log1p(12 * 512**2))
    assert row["log_intensity"] == pytest.approx(np.log(512 / 6), rel=1e-4)
    assert (row["flops_unknown"], row["message_bytes_unknown"], row["dims_unknown"]) == (0, 1, 0)
    assert row["log_num_inputs"] == pytest.approx(np.log1p(2))
    assert row["max_dims"] == 2
    assert row["log_elements"] == pytest.approx(np.log1p(2 * 512**2))
    assert row["log_last_dim"] == pytest.approx(np.log1p(512))
    assert (row["analytic_unknown"], row["log_analytic_us"]) == (1, 0)
    assert row["log_base_us"] == pytest.approx(np.log1p(4.0))


def test_the_sizes_of_a_product_and_its_waves_by_hand() -> None:
    row = numbers(two_rank_graph()).iloc[3]
    assert row["is_product"] == 1
    assert np.expm1([row["log_batch"], row["log_m"], row["log_n"], row["log_k"]]).round() == pytest.approx(
        [1, 512, 512, 512]
    )
    assert (row["align_m"], row["align_last_dim"]) == (6, 6)  # 64 is as far as it counts
    assert row["log_waves"] == pytest.approx(np.log1p(16 / 80))  # 4 x 4 tiles on 80 SMs
    assert row["wave_efficiency"] == pytest.approx(16 / 80)
    compute_us = 2 * 512**3 / (15e12 * 0.65) * 1e6
    memory_us = 12 * 512**2 / (900e9 * 0.80) * 1e6
    assert row["log_compute_us"] == pytest.approx(np.log1p(compute_us))
    assert row["log_memory_us"] == pytest.approx(np.log1p(memory_us))
    assert row["is_memory_bound"] == 0
    assert row["log_num_sms"] == pytest.approx(np.log(80))


def test_places_by_hand() -> None:
    graph = two_rank_graph()
    table = numbers(graph)
    (transfer,) = np.flatnonzero((graph.nodes["node_type"] == "collective").to_numpy())
    row = table.iloc[transfer]
    assert (row["from_partial"], row["to_replicate"], row["from_split"], row["to_split"]) == (1, 1, 0, 0)  # all-reduce
    assert np.expm1(row["log_group_size"]) == pytest.approx(2)
    assert np.expm1(row["log_machines"]) == pytest.approx(1)
    crossing = graph.edges["src"][graph.edges["relation"] == Relation.CROSSES]
    assert len(crossing)
    crossing = [*crossing, 14]  # the transfer crosses what its parts cross
    assert table["log_link_bytes_per_s"].iloc[crossing].tolist() == pytest.approx([np.log(80e9)] * len(crossing))
    assert (table["log_link_bytes_per_s"].drop(index=crossing) == 0).all()
    assert (row["is_first_rank"], row["is_last_rank"], row["rank_share"]) == (0, 0, 0)  # it belongs to no rank
    last = table[graph.nodes["rank"].to_numpy() == 1]
    assert set(last["is_last_rank"]) == {1.0}
    assert set(last["rank_share"]) == {1.0}


def test_every_feature_of_the_schema_has_a_column() -> None:
    assert figures.WORK_NAMES[: len(WORK_FEATURES)] == tuple(c.name for c in WORK_FEATURES)
    assert len(figures.WORK_NAMES) == len(WORK_FEATURES) + NUM_TEXT_FEATURES == len(set(figures.WORK_NAMES))


def test_unknown_is_flagged_and_never_nan() -> None:
    table = numbers(two_rank_graph())
    assert np.isfinite(table.to_numpy()).all()
    host = table.iloc[0]
    assert (host["flops_unknown"], host["bytes_unknown"], host["dims_unknown"], host["group_size_unknown"]) == (1,) * 4


def with_dims(texts: list[str | None], op: str = "aten::add", family: str = "elementwise") -> pd.DataFrame:
    return pd.DataFrame({"input_dims": pd.Series(texts, dtype="category"), "op_name": op, "family": family})


def test_shapes() -> None:
    result = figures.shape_numbers(with_dims(["[[2,3],[],[4]]", "[[[5,6],[7,8]],[]]", None, "not json", "[]"]))
    assert result.dims[:, 7].tolist() == [0, 0, 1, 1, 0]
    assert np.expm1(result.dims[:, 0]).round().tolist() == [2, 2, 0, 0, 0]
    assert np.expm1(result.dims[:, 2]).round().tolist() == [10, 86, 0, 0, 0]  # a tensor list is opened
    assert np.expm1(result.dims[:, 5]).round().tolist() == [2, 7, 0, 0, 0]
    assert result.last_dim.tolist() == [3, 8, 0, 0, 0]


def test_products_by_op() -> None:
    linear = figures.shape_numbers(with_dims(["[[4,8,16],[32,16],[32]]"], "aten::linear", "gemm")).product
    assert linear.tolist() == [[1, 32, 32, 16, 1]]
    batched = figures.shape_numbers(with_dims(["[[3,8,16],[3,16,4]]"], "aten::bmm", "gemm")).product
    assert batched.tolist() == [[3, 8, 4, 16, 1]]
    assert figures.shape_numbers(with_dims([None], "aten::mm", "gemm")).product.tolist() == [[0] * 5]
    addition = figures.shape_numbers(with_dims(["[[8,16],[16,4]]"]))
    assert addition.product.tolist() == [[0] * 5]
    below_zero = figures.shape_numbers(with_dims(["[[-1,2],[2,3]]"], "aten::mm", "gemm")).product
    assert below_zero.tolist() == [[1, 0, 3, 2, 1]]  # counts as none


@pytest.mark.parametrize("text", ["[1,2]", '["a",[2]]', "[null,[2,3]]", "[[2.5,1],[1,2]]", "[[],[]]", "[[[2,3]],[4]]"])
@pytest.mark.parametrize("op", ["aten::mm", "aten::linear", "aten::bmm", "aten::addmm"])
def test_what_is_no_shape_makes_no_product(op: str, text: str) -> None:
    assert figures.shape_numbers(with_dims([text], op, "gemm")).product.tolist() == [[0] * 5]


def test_alignment() -> None:
    assert figures.alignment(np.array([0, 1, 6, 64, 256, 48])).tolist() == [0, 0, 1, 6, 6, 4]


@given(st.text(max_size=30))
def test_no_text_in_place_of_shapes_breaks_it(text: str) -> None:
    assert np.isfinite(figures.shape_numbers(with_dims([text], "aten::mm", "gemm")).dims).all()


def test_a_dtype_that_matrix_units_isolated_have_goes_by_their_rate() -> None:
    h100 = load_device("h100_sxm")
    result = figures.sustained_flops_per_s(pd.Series(["float8", "float16", "float32", None]), default_cluster(h100))
    assert result == pytest.approx(h100.sustained_flops_share * np.array([1979e12, 989.4e12, 67e12, 67e12]))


def ood_distance(a: str, b: str) -> float:
    first, second = figures.text_numbers(pd.Series([a, b]))
    return float(first @ second)


def test_kin_is_nearer_than_strangers() -> None:
    assert ood_distance("aten::convolution", "aten::convolution_backward") > 0.6
    assert (
        ood_distance("aten::convolution", "aten::convolution_backward")
        > ood_distance("aten::convolution", "aten::gelu") + 0.3
    )


@given(st.text(max_size=40))
def test_rows_have_length_one_or_nothing_to_say(name: str) -> None:
    (row,) = figures.text_numbers(pd.Series([name], dtype=object))
    length = float(np.linalg.norm(row))
    assert length == pytest.approx(1, rel=1e-5) or length == 0


def test_null_is_zero_and_rows_keep_their_places() -> None:
    result = figures.text_numbers(pd.Series(["aten::mm", None, "aten::mm", "aten::add"], dtype="category"))
    assert not result[1].any()
    assert (result[0] == result[2]).all()
    assert (result[0] != result[3]).any()


def test_a_collective_crosses_the_slowest_link_of_its_parts() -> None:
    """Rank 0 hears of the link in the machine only, rank 1 of both; node 3 is another collective, without links."""
    arrive = {"node_type": NodeType.COMM, "segment": "arrive", "latency_us": 0.0, "collective": "all_reduce"}
    whole = {"node_type": NodeType.COLLECTIVE, "rank": -1, "collective": "all_reduce", "latency_us": 5.0}
    link = {"node_type": NodeType.LINK, "rank": -1}
    rows = [{**arrive, "rank": 0}, {**arrive, "rank": 1}, whole, whole,
            {**link, "op_name": "intra"}, {**link, "op_name": "inter"}]  # fmt: skip
    edges = [(0, 2, Relation.JOINS), (1, 2, Relation.JOINS), (0, 4, Relation.CROSSES), (1, 4, Relation.CROSSES),
             (1, 5, Relation.CROSSES)]  # fmt: skip
    apart = replace(cluster(), inter=LinkSpec("ethernet", 1e9, 30.0))
    result = figures.link_numbers(make_graph(rows, edges, ranks=(0, 1)), apart)
    inside, between = (
        [np.log(link.sustained_bytes_per_s), np.log1p(link.latency_us)] for link in (apart.intra, apart.inter)
    )
    assert result[:4].tolist() == [[*inside, 0.0], [*between, 1.0], [*between, 1.0], [0.0, 0.0, 0.0]]


PAGE = Path(__file__).resolve().parents[3] / "docs" / "features.md"


def test_the_page_in_the_repository_is_made_from_the_code() -> None:
    remedy = "python -m docs.made.features > docs/features.md"
    assert PAGE.read_text() == feature_page(), remedy


def test_every_feature_has_a_row_with_its_meaning() -> None:
    rows = [line.split(" | ") for line in feature_page().splitlines() if line.startswith("| `")]
    wanted = [*names(WORK_FEATURES), "text_0` to `text_31", *FIELDS]
    assert [row[0].removeprefix("| ").strip("`") for row in rows] == wanted
    assert all(len(row) == 3 and row[2].removesuffix(" |").strip() for row in rows)
