"""The whole ladder: one node on each rung, and why."""

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
from gnnperf.gnn.trust import Corrections, Transferability
from gnnperf.gnn.trust.trust import NAMES
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.predict.gnn import SILENT, BlendedPredictor, GnnPredictor
from gnnperf.predict.measured import read_measured
from gnnperf.predict.predictors import Predictors
from tests.predict.doubled import doubling

LIKE, TABLED, NEW_OP, HUGE, NAMELESS = 3, 10, 18, 19, 20  # node ids


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A network that answers twice the base for compute nodes and the base elsewhere; nothing is unlike training."""
    made = doubling(tmp_path)
    largest = dict.fromkeys(made.trust.own.usual, 2.0)  # between states of length 1
    own, around = (replace(ood_distance, usual=largest) for ood_distance in (made.trust.own, made.trust.around))
    return replace(made, trust=replace(made.trust, own=own, around=around))


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


def _without_number(reason: str) -> str:
    """Several numbers of a huge kernel are out of range: which is farthest out is not the ladder's matter."""
    number, out_of_range, rest = reason.partition(" beyond training")
    return f"(number){out_of_range}{rest}" if out_of_range and number in NAMES else reason


def measured_table(folder: Path) -> Path:
    row = {"op": "aten::mm", "shapes": [[64, 32], [32, 16]], "dtypes": ["float32", "float32"], "latency_us": 30.0,
           "launch_included": False, "device": "a card of mine"}  # fmt: skip
    path = folder / "ops.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def test_each_rung_models_for_one_kernel_and_states_why(checkpoint: Checkpoint, tmp_path: Path) -> None:
    network = GnnPredictor(checkpoint)
    fallback_order = Predictors((read_measured(measured_table(tmp_path), network.analytic), BlendedPredictor(network)))
    answer = fallback_order.predict(fallback_graph(), cluster())
    rungs = {
        TABLED: (Source.MEASURED, "measured"),
        LIKE: (Source.GNN, "alike in training"),
        NEW_OP: (Source.GNN_CALIBRATED, "op not in the vocabulary"),
        HUGE: (Source.ANALYTIC, "(number) beyond training"),
        NAMELESS: (Source.UNCOVERED, "op not in the vocabulary, and the analytical model has no answer"),
    }
    kernels = (answer.graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    assert {n: (answer.source[n], _without_number(answer.reasons[n])) for n in np.flatnonzero(kernels)} == rungs
    assert answer.uncovered_ops == {"mine::secret": 1}


def test_a_blend_lies_between_network_and_corrected_analytical_answer(checkpoint: Checkpoint) -> None:
    graph = fallback_graph()
    group = "v100 | compute | gemm"
    corrected = replace(checkpoint.trust, corrections=replace(checkpoint.trust.corrections, log={group: np.log(4.0)}))
    network = GnnPredictor(replace(checkpoint, trust=corrected))
    answer = BlendedPredictor(network).predict(graph, cluster())
    base_us = answer.analytic_latency_us
    weight = network.given(graph, cluster(), network.analytic.predict(graph, cluster())).trusted.weight[NEW_OP]
    assert answer.latency_us[LIKE] == pytest.approx(2.0 * base_us[LIKE], rel=1e-5)
    assert answer.latency_us[NEW_OP] == pytest.approx(2.0**weight * 4.0 ** (1 - weight) * base_us[NEW_OP], rel=1e-5)
    assert 0.5 < weight < 1
    assert answer.latency_us[HUGE] == pytest.approx(4.0 * base_us[HUGE])
    assert np.isnan(answer.latency_us[NAMELESS])
    assert answer.mean_latency_us is not None
    assert answer.isolated is not None
    assert not answer.isolated.nodes[NAMELESS]


def test_a_kernel_of_another_program_counts_as_far_as_corrections_transfer(checkpoint: Checkpoint) -> None:
    parted = Transferability(
        {"one": ("aten::mm",), "two": ("mine::mm",)}, (0.0,), (0.5,)
    )  # no program of training has both
    trust = replace(
        checkpoint.trust, transferability=parted, corrections=Corrections({"v100 | compute | gemm": np.log(4.0)})
    )
    network = GnnPredictor(replace(checkpoint, trust=trust))
    answer = BlendedPredictor(network).predict(fallback_graph(), cluster())
    half_of_both = 2.0**0.5 * (4.0**0.5) ** 0.5  # the family's correction carries as far as the network's
    assert answer.latency_us[LIKE] == pytest.approx(half_of_both * answer.analytic_latency_us[LIKE], rel=1e-5)
    assert answer.source[LIKE] == Source.GNN_CALIBRATED
    assert answer.reasons[LIKE] == "kernel of a program that training lacks"
    assert answer.reasons[NEW_OP] == "op not in the vocabulary"


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
    assert answer.reasons[LIKE] == "dtype float32 not seen on this device"
