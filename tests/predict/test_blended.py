"""The fallback order: one node per source, and why it has this source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import cluster, toy_run
from toys import DEFAULTS

from gnnperf.core.schema import NODE_COLUMNS, NodeType, Source
from gnnperf.gnn.checkpoint import Checkpoint
from gnnperf.gnn.trust import LONG_US, UNKNOWN_OP
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.predict.blended import SILENT, BlendedPredictor
from gnnperf.predict.gnn import GnnPredictor
from gnnperf.predict.measured import read_measured
from gnnperf.predict.predictors import Predictors
from tests.predict.doubled import doubling

LIKE, TABLED, NEW_OP, HUGE, NAMELESS = 3, 10, 18, 19, 20  # node ids


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A network that predicts twice the base for compute nodes and the base elsewhere."""
    return doubling(tmp_path)


def fallback_graph() -> ExecutionGraph:
    """A run of training, its second gemm with shapes of the table, and three kernels on a stream of their own."""
    graph = toy_run(ord("a"))
    kernel = {**DEFAULTS, "node_type": NodeType.COMPUTE, "device": 0, "stream": 1, "family": "gemm", "dtype": "float32"}
    size = graph.nodes.loc[LIKE, ["flops", "bytes", "input_dims"]].to_dict()
    extra = [
        {**kernel, **size, "op_name": "mine::mm"},
        {**kernel, **size, "op_name": "aten::mm", "flops": 1e30},
        {**kernel, "op_name": "mine::secret", "family": "unknown"},
    ]
    rows = pd.DataFrame([{**row, "node_id": graph.num_nodes + i} for i, row in enumerate(extra)])
    nodes = pd.concat([graph.nodes.astype(object), rows.astype(object)], ignore_index=True)[
        [c.name for c in NODE_COLUMNS]
    ]
    nodes.loc[TABLED, "input_dims"] = "[[64,32],[32,16]]"
    return replace(graph, nodes=nodes.astype({c.name: c.dtype for c in NODE_COLUMNS}))


def measured_table(folder: Path) -> Path:
    row = {"op": "aten::mm", "shapes": [[64, 32], [32, 16]], "dtypes": ["float32", "float32"], "latency_us": 30.0,
           "launch_included": False, "device": "a card of mine"}  # fmt: skip
    path = folder / "ops.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def test_each_rung_answers_for_one_kernel_and_states_why(checkpoint: Checkpoint, tmp_path: Path) -> None:
    network = GnnPredictor(checkpoint)
    fallback_order = Predictors((read_measured(measured_table(tmp_path), network.analytic), BlendedPredictor(network)))
    answer = fallback_order.predict(fallback_graph(), cluster())
    rungs = {
        TABLED: (Source.MEASURED, "measured"),
        LIKE: (Source.GNN, "alike in training"),
        NEW_OP: (Source.GNN_CALIBRATED, "op not in the vocabulary"),
        HUGE: (Source.GNN, "alike in training"),  # of a program that training has
        NAMELESS: (Source.UNCOVERED, "op not in the vocabulary, and the analytical model has no answer"),
    }
    kernels = (answer.graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    assert {n: (answer.source[n], answer.reasons[n]) for n in np.flatnonzero(kernels)} == rungs
    assert answer.uncovered_ops == {"mine::secret": 1}


def test_a_new_op_lies_between_network_and_analytical_latency(checkpoint: Checkpoint) -> None:
    answer = BlendedPredictor(GnnPredictor(checkpoint)).predict(fallback_graph(), cluster())
    base_us = answer.analytic_latency_us
    assert answer.latency_us[LIKE] == pytest.approx(2.0 * base_us[LIKE], rel=1e-5)
    assert answer.latency_us[NEW_OP] == pytest.approx(2.0**UNKNOWN_OP * base_us[NEW_OP], rel=1e-5)
    assert np.isnan(answer.latency_us[NAMELESS])
    assert answer.mean_latency_us is not None
    assert answer.isolated is not None
    assert not answer.isolated.nodes[NAMELESS]


def test_long_kernels_of_a_program_that_training_lacks_keep_the_closed_form(checkpoint: Checkpoint) -> None:
    others = replace(checkpoint.trust, programs={"one": ("aten::mm",), "two": ("mine::mm",)})  # none has both ops
    answer = BlendedPredictor(GnnPredictor(replace(checkpoint, trust=others))).predict(fallback_graph(), cluster())
    base_us = answer.analytic_latency_us
    assert base_us[LIKE] > LONG_US
    assert (answer.source[LIKE], answer.latency_us[LIKE]) == (Source.ANALYTIC, base_us[LIKE])
    assert answer.reasons[LIKE] == "long kernel of a program that training lacks"


def test_a_silent_head_leaves_the_base_and_states_so(checkpoint: Checkpoint) -> None:
    answer = BlendedPredictor(GnnPredictor(checkpoint)).predict(toy_run(ord("a")), cluster())
    assert answer.latency_us[0] == pytest.approx(answer.analytic_latency_us[0])
    assert (answer.source[0], answer.reasons[0]) == (Source.ANALYTIC, SILENT)


def test_of_another_device_than_training_nothing_was_learned(checkpoint: Checkpoint) -> None:
    on = cluster()
    answer = BlendedPredictor(GnnPredictor(checkpoint)).predict(
        toy_run(ord("a")), replace(on, device=replace(on.device, name="another"))
    )
    assert answer.source[LIKE] == Source.ANALYTIC
    assert answer.reasons[LIKE] == "device not in training"
