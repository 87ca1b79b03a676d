"""Latencies of the user's own table: which nodes take them, and which tables are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import cluster
from toys import two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import Source
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.predict.measured import read_measured, tensor_shapes
from gnnperf.predict.predictors import Predictors

GEMM_0, GEMM_1 = 3, 10
ROW = {"op": "aten::mm", "shapes": [[64, 32], [32, 16]], "dtypes": ["float32", "float32"], "latency_us": 30.0,
       "launch_included": False, "device": "a card of mine"}  # fmt: skip


def _graph(**columns: object) -> ExecutionGraph:
    """The toy whose first gemm has the row's shapes, the second one others."""
    graph = two_rank_graph()
    nodes = graph.nodes.copy()
    for name, values in {"input_dims": ["[[64,32],[32,16]]", "[[64,32],[32,8]]"], "dtype": ["float32"] * 2,
                         "num_siblings": [1, 1], **columns}.items():  # fmt: skip
        column = nodes[name].astype(object)
        column[[GEMM_0, GEMM_1]] = values
        nodes[name] = column.astype(nodes[name].dtype if name == "num_siblings" else "category")
    return replace(graph, nodes=nodes)


def _table(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "ops.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_node_with_the_rows_call_takes_its_latency(tmp_path: Path) -> None:
    predictor = read_measured(_table(tmp_path, ROW, {**ROW, "latency_us": 50.0}), AnalyticPredictor())
    answer = predictor.predict(_graph(), cluster())
    assert answer.latency_us[GEMM_0] == 40.0  # the median of both rows
    assert np.isnan(answer.latency_us[GEMM_1])
    assert answer.source[GEMM_0] == Source.MEASURED
    assert np.isfinite(answer.latency_us).sum() == 1


def test_the_other_rungs_answer_for_the_rest(tmp_path: Path) -> None:
    table = read_measured(_table(tmp_path, ROW), AnalyticPredictor())
    answer = Predictors((table, AnalyticPredictor())).predict(_graph(), cluster())
    assert answer.latency_us[GEMM_0] == 30.0
    assert [answer.source[n] for n in (GEMM_0, GEMM_1)] == [Source.MEASURED, Source.ANALYTIC]


@pytest.mark.parametrize(
    "columns",
    [
        {"dtype": ["bfloat16", "bfloat16"]},
        {"num_siblings": [2, 2]},  # the row times both kernels of the op together
        {"input_dims": ["[[64,32],[32,17]]", None]},
    ],
)
def test_another_call_is_left_to_others(tmp_path: Path, columns: dict[str, object]) -> None:
    predictor = read_measured(_table(tmp_path, ROW), AnalyticPredictor())
    assert np.isnan(predictor.predict(_graph(**columns), cluster()).latency_us).all()


def test_a_table_of_another_device_is_refused(tmp_path: Path) -> None:
    named = {**ROW, "device": "NVIDIA H200"}
    predictor = read_measured(_table(tmp_path, named), AnalyticPredictor())
    requested = cluster()
    other = replace(requested, device=replace(requested.device, name="v100_sxm2_32gb"))
    with pytest.raises(InputError, match=r"was measured on NVIDIA H200, the prediction is for v100_sxm2_32gb"):
        predictor.predict(_graph(), other)


def test_calls_with_their_launch_say_nothing_of_kernels(tmp_path: Path) -> None:
    own = {**ROW, "device": "my own", "launch_included": True}
    with pytest.raises(InputError, match="has no row that tells the device's own time"):
        read_measured(_table(tmp_path, own), AnalyticPredictor()).predict(_graph(), cluster())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (({**ROW, "device": "a"}, {**ROW, "device": "b"}), "names 2 devices: a, b"),
        (({k: v for k, v in ROW.items() if k != "device"},), "names 0 devices"),
        (({**ROW, "direction": "backward"},), "no row is a measured forward op"),
    ],
)
def test_what_is_no_table_of_one_device_is_refused(
    tmp_path: Path, rows: tuple[dict[str, object], ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_measured(_table(tmp_path, *rows), AnalyticPredictor())


def test_shapes_of_tensors_among_arguments() -> None:
    assert tensor_shapes("[[2,3],[],[4]]") == ((2, 3), (4,))
    assert tensor_shapes("[[[2,3],[4]],[]]") == ((2, 3), (4,))  # a list of tensors
    assert tensor_shapes("[]") == ()
