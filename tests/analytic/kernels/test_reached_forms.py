"""Forms that traces reach by an op's name, its parts, its kernel's name, its cost or its run's card."""

import json
from dataclasses import replace

import numpy as np
import pytest
from round_device import CONSTANTS, DEVICE, ROUND
from traces import Event, call, kernel, mark, op, run_of, trace

from gnnperf.analytic import AnalyticPredictor
from gnnperf.analytic.embedding.calls import counted_access, lookups_us, with_counts
from gnnperf.analytic.embedding.model import Lookups, lookup_costs, lookup_us
from gnnperf.analytic.kernels.call import KernelCall, LookupAccess
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.kernels.nodes import compute_nodes_us
from gnnperf.analytic.memory_bound.calls import chain_ops, chains_us
from gnnperf.analytic.memory_bound.streams import chain_us
from gnnperf.core import NodeType
from gnnperf.graph import TableCounts, build_graph
from gnnperf.hardware.catalog import default_cluster, load_device
from tests.analytic.kernels.calls import call as op_call

H100 = load_device("h100_sxm")


def part(name: str, at: float, corr: int, shapes: list[list[int]]) -> list[Event]:
    """An op inside of attention, with its kernel."""
    types = json.dumps(["float"] * len(shapes))
    around = op(name, at, at + 8, input_dims=json.dumps(shapes), input_types=types)
    return [around, call("cudaLaunchKernel", at + 2, at + 4, corr=corr), kernel("k", at + 5, at + 7, corr=corr)]


def test_unfused_attention_in_a_trace_is_priced_by_its_parts() -> None:
    heads, scores = [8, 256, 64], [8, 256, 256]
    parts = [("aten::bmm", [heads, [8, 64, 256]]), ("aten::_softmax", [scores]), ("aten::bmm", [scores, heads])]
    events = [e for i, (name, shapes) in enumerate(parts) for e in part(name, 10.0 + 20 * i, i + 1, shapes)]
    whole = op("aten::_scaled_dot_product_attention_math", 5, 80, input_dims=json.dumps([[2, 4, 256, 64]] * 3),
               input_types='["float","float","float"]')  # fmt: skip
    nodes = build_graph(run_of(trace(mark(0, 0, 100), whole, *events))).nodes
    kernels = nodes[nodes["node_type"] == NodeType.COMPUTE]
    assert kernels["op_name"].tolist() == ["aten::bmm", "aten::_softmax", "aten::bmm"]
    isolated = kernel_times([op_call(name, shapes) for name, shapes in parts], H100, 4.0)
    assert isolated.by_form.all()
    assert compute_nodes_us(kernels, H100, 4.0) == pytest.approx(isolated.latency_us)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("triton_poi_fused_add_mul_relu_3", ("add", "mul", "relu")),
        ("triton_poi_fused__to_copy_pow_silu_backward_12", ("_to_copy", "pow", "silu_backward")),
        ("triton_red_fused_native_layer_norm_view_1", ("native_layer_norm",)),  # a view computes nothing
        ("triton_per_fused__softmax_masked_fill", ("_softmax", "masked_fill")),
        ("triton_poi_fused_0", ()),
        ("triton_poi_fused_frobnicate_add_0", ("frobnicate", "add")),  # unknown words count as ops
    ],
)
def test_ops_of_a_kernels_name(name: str, ops: tuple[str, ...]) -> None:
    assert chain_ops(name) == ops


def test_a_fused_kernel_costs_its_buffers_once_and_all_its_instructions() -> None:
    buffers = [[1000, 1000]] * 3
    plain, heavy = (op_call(f"triton_poi_fused_{ops}_0", buffers) for ops in ("add_relu", "add_pow"))
    elements, moved = np.array([1e6]), np.array([12e6])
    expected = [chain_us(ops, elements, moved, DEVICE, CONSTANTS)[0] for ops in (("add", "relu"), ("add", "pow"))]
    assert expected == pytest.approx([26.0, 103.0])
    assert chains_us([plain, heavy], ROUND) == pytest.approx(expected)
    assert kernel_times([plain], H100, 4.0).by_form.all()


def test_a_fused_reduction_has_no_second_pass_inside() -> None:
    fused, plain = op_call("triton_per_fused_sum_0", [[1000, 1000], [1]]), op_call("aten::sum", [[1000, 1000]])
    assert np.diff(kernel_times([fused, plain], DEVICE, 4.0).latency_us)[0] > 0


def test_a_fused_kernel_without_recorded_buffers_has_no_prediction() -> None:
    nothing = KernelCall("triton_poi_fused_add_0", None, None, "elementwise", np.nan, np.nan)
    assert np.isnan(kernel_times([nothing], H100, 4.0).latency_us[0])


def test_two_of_four_is_faster_only_where_units_know_the_pattern() -> None:
    shapes = [[8192, 4096 * 9 // 16], [4096, 8192], []]
    requested = op_call("aten::_cslt_sparse_mm", shapes, "float16")
    devices = [replace(H100, sparse_matrix_speedup=speedup) for speedup in (2.0, 1.0)]
    knows, does_not = (kernel_times([requested], device, 4.0).latency_us[0] for device in devices)
    assert does_not == pytest.approx(2.0 * knows, rel=0.02)


HISTOGRAM = (8_000, 3_000, 2_000, 2_000, 2_000)
COUNTS = TableCounts(rows=100_000, dim=16, lookups=16_000, batches=4, reuse_histogram=HISTOGRAM)


def bag(rows: int, dim: int, lookups: int = 16_000) -> KernelCall:
    return op_call("aten::_embedding_bag", [[rows, dim], [lookups], [100]])


def test_counted_tables_are_requested_for_as_counted() -> None:
    (requested,) = with_counts([bag(100_000, 16)], [COUNTS])
    access = counted_access(1e5, np.array(HISTOGRAM) / 4.0, 16_000.0)
    rows, dim, lookups, bags, one = (np.array([float(v)]) for v in (1e5, 16, 16_000, 100, 1))
    calls = Lookups(rows, dim, lookups, bags, one, one, np.zeros(1, bool), counted=access)
    result = lookups_us([requested, bag(100_000, 16)], ROUND)
    assert result[0] == pytest.approx(lookup_us(calls, lookup_costs(DEVICE, CONSTANTS))[0])
    assert result[0] < 0.8 * result[1]  # 4,250 different rows, not 14,800


@pytest.mark.parametrize(
    ("rows", "dim", "held"),
    [(100_000, 16, True), (50_000, 16, True), (33_334, 16, True), (100_000, 8, True), (33_333, 16, False),
     (100_000, 12, False), (200_000, 16, False)],
)  # fmt: skip
def test_a_rank_may_hold_a_part_of_a_table(rows: int, dim: int, held: bool) -> None:
    (requested,) = with_counts([bag(rows, dim)], [COUNTS])
    assert (requested.access.counted is not None) == held
    if held:
        assert requested.access.counted is not None
        few = requested.access.counted.unique(np.array([16_000.0 * rows / 100_000]))  # the rank's part of the lookups
        assert few == pytest.approx([4_250 * rows / 100_000], rel=0.1)


def test_counts_say_nothing_about_other_ops_or_unknown_shapes() -> None:
    unknown = replace(bag(100_000, 16), input_dims=None)
    calls = [op_call("aten::mm", [[100_000, 16], [16, 4]]), unknown]
    assert with_counts(calls, [COUNTS]) == calls
    assert with_counts([bag(100_000, 16)], []) == [bag(100_000, 16)]


def test_the_predictor_takes_the_counts_of_the_runs_card() -> None:
    shapes, types = json.dumps([[100_000, 16], [16_000], [100]]), '["float","long int","long int"]'
    lookup = op("aten::_embedding_bag", 5, 30, input_dims=shapes, input_types=types)
    run = run_of(
        trace(mark(0, 0, 100), lookup, call("cudaLaunchKernel", 10, 12, corr=1), kernel("bag", 15, 40, corr=1))
    )
    entry = {"rows": 100_000, "dim": 16, "batches": 4, "lookups_per_batch": 16_000, "reuse_histogram": list(HISTOGRAM)}
    card: dict[str, object] = {"ranks": [{"rank": 0, "index_statistics": [entry]}]}
    cluster = default_cluster(replace(H100, l2_bytes=2**20))
    graphs = [build_graph(replace(run, card=result)) for result in (None, card)]
    assumed, counted = (AnalyticPredictor().predict(g, cluster).latency_us[(g.nodes["event_name"] == "bag").to_numpy()]
                        for g in graphs)  # fmt: skip
    assert counted < assumed


def test_more_skew_and_warm_caches_help_and_more_tables_do_not() -> None:
    def us(**about: float) -> float:
        access = LookupAccess(**about)  # type: ignore[arg-type]  # warm is a bool
        return float(lookups_us([replace(bag(100_000, 16), access=access)], ROUND)[0])

    assert us(skew=4.0) < us()
    assert us(skew=8.0, warm=True) <= us(skew=8.0)
    assert us(skew=8.0, warm=True, tables=1.0) <= us(skew=8.0, warm=True, tables=100.0)
