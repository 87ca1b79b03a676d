"""Kernels of torch.compile: what Inductor's names tell where no op does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from traces import Event, call, kernel, mark, op, run_of, trace

from gnnperf.analytic.memory_bound.calls import chain_ops
from gnnperf.graph.build import build_graph
from gnnperf.graph.cost import fused_name
from gnnperf.trace import read_run

NAME = "triton_poi_fused_add_mul_0"
BUFFERS, OTHER = "[[1000],[1000],[1000]]", "[[500],[500],[500]]"
TYPES = '["float","float","float"]'


def kernels_of(*events: Event) -> pd.DataFrame:
    nodes = build_graph(run_of(trace(mark(0, 0, 100), *events))).nodes
    return nodes[nodes["stream"] >= 0]


def isolated(name: str, at: float = 60, corr: int = 9) -> list[Event]:
    """A kernel that a graph launches only: no op is around it."""
    return [call("cudaGraphLaunch", at, at + 2, corr=corr), kernel(name, at + 5, at + 9, corr=corr)]


def eager(dims: str, at: float = 5, corr: int = 1) -> list[Event]:
    """The same kernel where an op launched it."""
    return [op(NAME, at, at + 10, input_dims=dims, input_types=TYPES),
            call("cuLaunchKernel", at + 2, at + 4, corr=corr), kernel(NAME, at + 11, at + 14, corr=corr)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "result"),
    [
        (NAME, NAME),
        (f"{NAME}_0d1d2de", NAME),
        ("triton_red_fused_native_layer_norm_10", "triton_red_fused_native_layer_norm_10"),
        ("triton_per_fused_sum_2_0d1d", "triton_per_fused_sum_2"),
        ("triton__0d1d2d", None),  # Inductor's names before they listed ops
        ("ampere_sgemm_128x64_nn", None),
    ],
)
def test_inductors_names(name: str, result: str | None) -> None:
    assert fused_name(name) == result


@pytest.mark.parametrize(
    ("name", "family"),
    [(NAME, "elementwise"), ("triton_red_fused_sum_1", "reduction"), ("triton_per_fused__softmax_2", "reduction"),
     ("triton_tem_fused_mm_3", "gemm"), ("my_kernel", "unknown")],
)  # fmt: skip
def test_the_name_reports_the_family_and_no_size(name: str, family: str) -> None:
    node = kernels_of(*isolated(name)).iloc[0]
    assert node["family"] == family
    assert np.isnan(node["bytes"])
    assert node["op_name"] == (name if family != "unknown" else "cudaGraphLaunch")
    assert node["event_name"] == name


def test_sizes_come_from_ops_of_the_name_in_the_same_trace() -> None:
    nodes = kernels_of(*eager(BUFFERS), *isolated(f"{NAME}_0d1d2d"))
    assert nodes["bytes"].tolist() == [12000.0, 12000.0]  # three buffers of 1,000 float32
    assert nodes["dtype"].tolist() == ["float32", "float32"]
    assert nodes["input_dims"].tolist() == [BUFFERS, BUFFERS]
    assert nodes["op_name"].tolist() == [NAME, NAME]
    assert chain_ops(nodes["op_name"].iloc[1]) == ("add", "mul")


def test_ops_of_one_name_with_several_sizes_tell_none() -> None:
    nodes = kernels_of(*eager(BUFFERS), *eager(OTHER, at=30, corr=2), *isolated(NAME))
    assert nodes["bytes"].fillna(-1).tolist() == [12000.0, 6000.0, -1.0]
    assert nodes["family"].tolist() == ["elementwise"] * 3


@pytest.mark.mirror
def test_compiled_kernels_of_a_public_trace_have_family_and_bytes(mirror: Path) -> None:
    graph = build_graph(read_run(mirror / "pytorch+ao/torchao/prototype/server/amg_example/amg_example_trace.json.gz"))
    nodes = graph.nodes[graph.nodes["node_type"] == "compute"]
    fused = nodes[nodes["event_name"].astype(str).map(fused_name).notna()]
    assert len(fused) == 58
    assert (fused["op_name"].astype(str) == fused["event_name"].astype(str)).all()
    assert fused["family"].astype(str).isin(["elementwise", "reduction", "gemm"]).all()
    assert fused["bytes"].notna().mean() > 0.9
