"""The analytical prediction: hand-computed numbers, and what must hold whatever the constants are; graph launches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph, two_rank_graph

from gnnperf.analytic import AnalyticConstants, AnalyticPredictor, default_constants
from gnnperf.analytic.gemm.model import gemm_us, products
from gnnperf.analytic.predictor import graph_launch_us, launched_kernels
from gnnperf.core import InputError, NodeType, Relation, Segment, Source
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec, DeviceSpec, LinkSpec, load_cluster
from research.fitting.gpu_constants import fit_graph_launches

# Round numbers: 1e12 FLOP/s and 1e12 bytes/s sustained, so 1e6 of either is 1 us.
DEVICE = DeviceSpec(
    name="round", kind="gpu",
    flops_per_s={"float32": 1e12, "float16_matrix": 8e12, "float32_matrix": 4e12, "float16": 2e12},
    memory_bandwidth_bytes_per_s=1e12, l2_bytes=1e6, num_sms=10, clock_hz=1e9, memory_bytes=1e10, launch_floor_us=2.0,
    sustained_flops_share=1.0, sustained_bandwidth_share=1.0,
)  # fmt: skip
CLUSTER = ClusterSpec(
    name="round", device=DEVICE, ranks_per_node=4,
    intra=LinkSpec("inner", 100e9, 1.0, 1.0), inter=LinkSpec("outer", 10e9, 5.0, 1.0),
    host_link=LinkSpec("pcie", 10e9, 0.5, 1.0),
)  # fmt: skip
CONSTANTS = AnalyticConstants(
    host_overhead_us={("T2", "aten::mm"): 9.0, ("T4", "cudaLaunchKernel"): 7.0},
    segment_us={"T1": 1.0, "T2": 2.0, "T3": 3.0, "T4": 4.0, "T5": 5.0, "exit": 6.0},
    lag_us={"gpu": {"launch": 8.0, "stream": 1.5}, "cpu": {"launch": 0.0, "stream": 0.0}},
    collective_floor_us={"gpu": 10.0, "cpu": 50.0}, copy_floor_us={"gpu": 1.0, "cpu": 0.5},
    pageable_share=0.5, roofline_power=1000.0,
)  # fmt: skip
PREDICTOR = AnalyticPredictor(CONSTANTS)


BLANK = make_graph([{"node_type": NodeType.HOST}], []).nodes  # one row; building a graph for each example is slow


def predict(
    row: dict[str, Any], cluster: ClusterSpec = CLUSTER, predictor: AnalyticPredictor = PREDICTOR
) -> Prediction:
    return predictor.predict(make_graph([row], []), cluster)


def latency(row: dict[str, Any], cluster: ClusterSpec = CLUSTER, predictor: AnalyticPredictor = PREDICTOR) -> float:
    return float(predictor.latency_us(BLANK.assign(**row), cluster)[0])


def compute(flops: float, moved: float, family: str = "gemm", dtype: str | None = "float32") -> dict[str, Any]:
    return {"node_type": NodeType.COMPUTE, "op_name": "aten::mm", "family": family, "dtype": dtype, "flops": flops,
            "bytes": moved}  # fmt: skip


def memory(name: str | None, moved: float) -> dict[str, Any]:
    return {"node_type": NodeType.MEMORY, "op_name": "aten::copy_", "event_name": name, "bytes": moved}


def collective(kind: str, message: float, ranks: int) -> dict[str, Any]:
    return {"node_type": NodeType.COLLECTIVE, "op_name": "c10d::op", "collective": kind, "message_bytes": message,
            "group_size": ranks}  # fmt: skip


def host(segment: str, op: str | None, call: str | None = None) -> dict[str, Any]:
    return {"node_type": NodeType.HOST, "segment": segment, "op_name": op, "event_name": call}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (compute(30e6, 10e6), 2 + 30),  # compute bound
        (compute(10e6, 30e6), 2 + 30),  # memory bound
        (compute(np.nan, 30e6), 2 + 30),  # bytes only
        (compute(30e6, np.nan), 2 + 30),  # FLOPs only
        (compute(0.0, 0.0, "view"), 2),  # a view is the floor
        (compute(80e6, 0.0, "gemm", "float16"), 2 + 10),  # matrix units
        (compute(80e6, 0.0, "elementwise", "float16"), 2 + 40),  # not a matrix op
        (compute(80e6, 0.0, "gemm", "float32"), 2 + 80),  # TF32 is off for matrix products
        (compute(80e6, 0.0, "conv", "float32"), 2 + 20),  # and on for convolutions
        (compute(80e6, 0.0, "gemm", "bfloat16"), 2 + 80),  # no rate of its own: float32, without matrix units
        (compute(80e6, 0.0, "elementwise", "int64"), 2 + 80),
        (compute(80e6, 0.0, "gemm", None), 2 + 80),
    ],
)
def test_compute_by_hand(row: dict[str, Any], expected: float) -> None:
    assert latency(row) == pytest.approx(expected)


def test_a_device_without_units_for_a_dtype_has_no_latency() -> None:
    assert predict(compute(80e6, 0.0, "gemm", "float8_e4m3fn")).uncovered_ops == {"aten::mm": 1}
    units = replace(DEVICE, flops_per_s={**DEVICE.flops_per_s, "float8_matrix": 16e12})
    assert latency(compute(80e6, 0.0, "gemm", "float8_e4m3fn"), replace(CLUSTER, device=units)) == pytest.approx(2 + 5)


def test_shapes_are_for_gpus_only() -> None:
    row = {**compute(30e6, 10e6), "input_dims": "[[250,300],[300,200]]"}
    on_cpu = replace(CLUSTER, device=replace(DEVICE, kind="cpu"))
    assert latency(row, on_cpu) == pytest.approx(2 + 30)
    assert latency(row) == pytest.approx(gemm_us(DEVICE, "float32", products(250, 200, 300))[0])
    assert latency({**row, "num_siblings": 2}) == pytest.approx(
        (gemm_us(DEVICE, "float32", products(250, 200, 300))[0] + DEVICE.launch_floor_us) / 2
    )  # two kernels of one call


def test_soft_roofline_lies_between_the_maximum_and_the_sum() -> None:
    soft = AnalyticPredictor(replace(CONSTANTS, roofline_power=4.0))
    assert latency(compute(10e6, 10e6), predictor=soft) == pytest.approx(2 + 10 * 2**0.25)
    assert latency(compute(10e6, 1e3), predictor=soft) == pytest.approx(2 + 10)


def test_both_unknown_is_uncovered_and_counted() -> None:
    row = compute(np.nan, np.nan)
    graph = make_graph([row, row, {**row, "op_name": "my::op"}, compute(1e6, 1e6)], [])
    prediction = PREDICTOR.predict(graph, CLUSTER)
    assert np.isnan(prediction.latency_us).tolist() == [True, True, True, False]
    assert prediction.source.tolist() == [Source.UNCOVERED] * 3 + [Source.ANALYTIC]
    assert prediction.uncovered_ops == {"aten::mm": 2, "my::op": 1}


WORK = st.floats(0, 1e15)
FACTOR = st.floats(1, 1e3)


@given(WORK, WORK, FACTOR, st.sampled_from([1.5, 4.0, 64.0]))
def test_more_work_is_never_faster_and_a_better_device_never_slower(
    flops: float, moved: float, factor: float, power: float
) -> None:
    soft = AnalyticPredictor(replace(CONSTANTS, roofline_power=power))
    base = latency(compute(flops, moved), predictor=soft)
    slack = 1 - 1e-12
    assert base >= DEVICE.launch_floor_us
    assert latency(compute(flops * factor, moved), predictor=soft) >= base * slack
    assert latency(compute(flops, moved * factor), predictor=soft) >= base * slack
    faster = replace(DEVICE, memory_bandwidth_bytes_per_s=1e12 * factor)
    assert latency(compute(flops, moved), replace(CLUSTER, device=faster), soft) <= base / slack
    stronger = replace(DEVICE, flops_per_s={"float32": 1e12 * factor})
    assert latency(compute(flops, moved), replace(CLUSTER, device=stronger), soft) <= base / slack


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pinned -> Device)", 1 + 0.5 + 100), ("Memcpy DtoH (Device -> Pinned)", 1 + 0.5 + 100),
        ("CopyHostToDevice", 1 + 0.5 + 100), ("Memcpy HtoD (Pageable -> Device)", 1 + 0.5 + 200),
        ("Memcpy DtoD (Device -> Device)", 1 + 2), ("Memset (Device)", 1 + 1),
        ("Memcpy PtoP (Device -> Device)", 1 + 1 + 10),
    ],
)  # fmt: skip
def test_copy_by_hand(name: str, expected: float) -> None:
    assert latency(memory(name, 1e6)) == pytest.approx(expected)


@pytest.mark.parametrize("row", [memory("Memcpy HtoD", np.nan), memory(None, 1e6), memory("Memcpy AtoB", 1e6)])
def test_copy_of_unknown_size_or_path_is_uncovered(row: dict[str, Any]) -> None:
    assert predict(row).source[0] == Source.UNCOVERED


@given(st.sampled_from(["Memcpy HtoD", "Memcpy DtoD", "Memset", "Memcpy PtoP"]), WORK, FACTOR)
def test_a_longer_copy_is_never_faster_and_zero_bytes_cost_the_floor(name: str, moved: float, factor: float) -> None:
    zero = latency(memory(name, 0.0))
    assert zero <= 1 + 1
    assert zero <= latency(memory(name, moved)) <= latency(memory(name, moved * factor))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (collective("all_reduce", 1e6, 4), 50 + 6 * 1 + 1.5 * 10),
        (collective("reduce_scatter", 1e6, 4), 50 + 3 + 0.75 * 10),
        (collective("all_gather", 1e6, 4), 50 + 3 + 3 * 10),
        (collective("all_to_all", 1e6, 4), 50 + 3 + 0.75 * 10),
        (collective("broadcast", 1e6, 4), 50 + 3 + 10),
        (collective("send", 1e6, 2), 50 + 1 + 10),
        (collective("barrier", np.nan, 4), 50 + 6),
        (collective("all_reduce", 1e6, 1), 50),  # by itself: the start-up
        # two nodes of four: 14 hops, 4 of them between nodes; the four ranks share their host's one way out, 10 GB/s
        (collective("all_reduce", 1e6, 8), 50 + 4 * 5 + 10 * 1 + 1.75 * 100),
        # 4 of 7 peers are outside: four ranks send 1/2 MB each
        (collective("all_to_all", 1e6, 8), 50 + 2 * 5 + 5 * 1 + 4 * 50),
    ],
)
def test_collective_by_hand(row: dict[str, Any], expected: float) -> None:
    gloo = replace(CLUSTER, device=replace(DEVICE, kind="cpu"))  # one protocol; NCCL's three: test_collectives.py
    assert latency(row, gloo) == pytest.approx(expected)


@pytest.mark.parametrize(
    "row", [collective("all_reduce", np.nan, 4), collective("all_reduce", 1e6, -1), collective("gossip", 1e6, 4)]
)
def test_collective_without_size_group_or_formula_is_uncovered(row: dict[str, Any]) -> None:
    prediction = predict(row)
    assert np.isnan(prediction.latency_us[0])
    assert prediction.uncovered_ops == {"c10d::op": 1}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (host("T2", "aten::mm"), 9.0), (host("T2", "aten::add"), 2.0), (host("T2", None), 2.0),
        (host("T4", "aten::mm", "cudaLaunchKernel"), 7.0), (host("T4", "aten::mm", "cudaMemcpyAsync"), 4.0),
        (host("T5", "aten::view"), 5.0),
    ],
)  # fmt: skip
def test_host_by_hand(row: dict[str, Any], expected: float) -> None:
    assert latency(row) == expected
    assert latency(row, replace(CLUSTER, host_speed=2.0)) == expected / 2


def test_waiting_for_untraced_peers_is_uncovered() -> None:
    assert predict(host(Segment.PEER_WAIT, "nccl:all_reduce")).uncovered_ops == {"peer_wait": 1}


def test_whole_toy_graph() -> None:
    graph = two_rank_graph()
    prediction = PREDICTOR.predict(graph, CLUSTER)
    types = graph.nodes["node_type"].astype(str)
    assert prediction.uncovered_ops == {} and not np.isnan(prediction.latency_us).any()
    assert not prediction.latency_us[types.isin(["device", "link"])].any()
    assert prediction.latency_us[types == "comm"].tolist() == [0.0, 6.0, 0.0, 6.0]  # arrive, exit on each rank
    product_us = gemm_us(DEVICE, "float32", products(512, 512, 512))[0]  # [[512, 512], [512, 512]] in float32
    assert prediction.latency_us[types == "compute"] == pytest.approx([product_us] * 2)
    assert np.array_equal(prediction.analytic_latency_us, prediction.latency_us)
    assert np.isnan(prediction.latency_low_us).all() and np.isnan(prediction.latency_high_us).all()
    assert not prediction.lag_us.any() and len(prediction.lag_us) == len(graph.edges)


def test_lags_by_class() -> None:
    rows = [host("T4", "aten::mm"), compute(1e6, 1e6), compute(1e6, 1e6)]
    edges = [(0, 1, "launches"), (1, 2, "follows"), (0, 2, "launches")]
    lags = {(0, 1): ("launch", np.nan), (1, 2): ("stream", np.nan)}
    prediction = PREDICTOR.predict(make_graph(rows, edges, lags=lags), CLUSTER)
    assert prediction.lag_us.tolist() == [8.0, 1.5, 0.0]
    on_cpu = PREDICTOR.predict(make_graph(rows, edges, lags=lags), replace(CLUSTER, device=replace(DEVICE, kind="cpu")))
    assert on_cpu.lag_us.tolist() == [0.0, 0.0, 0.0]


def test_a_lag_class_without_a_constant_is_an_error() -> None:
    graph = make_graph([host("T1", "a"), host("T1", "b")], [(0, 1, "follows")], lags={(0, 1): ("teleport", 1.0)})
    with pytest.raises(InputError, match=r"teleport.*launch"):
        PREDICTOR.predict(graph, CLUSTER)


def test_labels_are_not_read() -> None:
    graph = two_rank_graph()
    blank = replace(graph, nodes=graph.nodes.assign(start_us=np.nan, latency_us=np.nan, blocked_us=np.nan))
    first, second = PREDICTOR.predict(graph, CLUSTER), PREDICTOR.predict(blank, CLUSTER)
    assert np.array_equal(first.latency_us, second.latency_us)


def test_an_empty_graph_is_predicted() -> None:
    graph = make_graph([host("T1", "a")], []).step(7)
    assert PREDICTOR.predict(graph, CLUSTER).latency_us.shape == (0,)


def test_constants_of_another_kind_of_device_do_not_apply() -> None:
    cpu, gpu = default_constants("cpu"), default_constants("gpu")
    row = {"node_type": NodeType.HOST, "segment": "T4", "event_name": "cudaLaunchKernel", "op_name": "aten::mm"}
    assert latency(row, predictor=AnalyticPredictor(cpu)) == latency(row, predictor=AnalyticPredictor(gpu))
    unkind = replace(cpu, device_kind="", host_overhead_us={}, segment_us={"T4": 1.0})
    assert latency(row, predictor=AnalyticPredictor(unkind)) == pytest.approx(1.0)


def launches(*kernels: int, latency_us: float = float("nan")) -> ExecutionGraph:
    """One call per number of kernels; 1: a graph of a single kernel."""
    rows: list[dict[str, object]] = []
    edges = []
    for count in kernels:
        name = f"cudaGraphLaunch[{count} kernels]" if count > 1 else "gemm"
        rows.append({"node_type": NodeType.HOST, "segment": Segment.T4, "event_name": "cudaGraphLaunch", "thread": 0,
                     "latency_us": latency_us})  # fmt: skip
        rows.append({"node_type": NodeType.COMPUTE, "event_name": name, "stream": 0, "device": 0})
        edges.append((len(rows) - 2, len(rows) - 1, Relation.LAUNCHES))
    return make_graph(rows, edges)


def test_kernels_under_a_launch() -> None:
    assert launched_kernels(launches(5, 1)).tolist() == [5, 0, 1, 0]


def test_kernels_on_two_streams_add_up() -> None:
    graph = launches(5, 3)
    both = graph.edges.assign(src=0)
    assert launched_kernels(ExecutionGraph(**{**graph.__dict__, "edges": both})).tolist() == [8, 0, 0, 0]


def test_other_calls_launch_no_graph() -> None:
    rows: list[dict[str, object]] = [
        {"node_type": NodeType.HOST, "segment": Segment.T4, "event_name": "cudaLaunchKernel", "thread": 0},
        {"node_type": NodeType.COMPUTE, "event_name": "gemm", "stream": 0, "device": 0},
    ]
    assert not launched_kernels(make_graph(rows, [(0, 1, Relation.LAUNCHES)])).any()


def test_the_predictor_counts_kernels_and_the_hosts_speed() -> None:
    cluster = load_cluster("dgx_a100")
    constants = default_constants("gpu")
    small, large = (AnalyticPredictor().predict(launches(n), cluster).latency_us[0] for n in (2, 500))
    assert large == pytest.approx(graph_launch_us(np.array([500.0]), constants)[0] / cluster.host_speed)
    assert large - small == pytest.approx(498 * constants.graph_launch_us["kernel"] / cluster.host_speed)


def test_a_fit_finds_call_and_kernel() -> None:
    graphs = [launches(n, latency_us=10.0 + 0.5 * n) for n in (1, 10, 100, 1000)]
    fitted = fit_graph_launches(graphs, default_constants())
    assert graph_launch_us(np.array([50.0]), fitted)[0] == pytest.approx(35.0, rel=0.05)


def test_without_launches_nothing_changes() -> None:
    assert fit_graph_launches([], default_constants()) == default_constants()
    assert fit_graph_launches([launches(3)], default_constants()) == default_constants()  # no labels
