"""Every kind of public list: layers found, all ops priced, and a label next to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.hardware import default_cluster, load_device
from research.listed import Part, build_listed, sections
from research.listed.operator_list import read_operator_list
from research.tables.model_labels import layers_of, operator_list_path, read_model_labels, run_of


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "first", "last", "layers"),
    [
        ("bert_large-train-512-2", "attention_self_query", "output_layer_norm", 24),
        ("gpt2_large-train-1024-1", "h_0_ln_1", "add_15", 36),
        ("opt_13-inf-2048-2", "self_attn_layer_norm", "view_11", 24),
    ],
)
def test_layers_and_coefficients_of_public_lists(mirror: Path, name: str, first: str, last: str, layers: int) -> None:
    run = run_of(name)
    ops, repeats = read_operator_list(operator_list_path(mirror, run)), layers_of(mirror, run.model)
    _, layer, _ = sections(ops, repeats, run.training)
    assert layer.calls[0].op.name.endswith(first) and layer.calls[-1].op.name.endswith(last)
    assert layer.repeats == layers
    graph = build_listed(name, ops, 2, Part.BOTH if run.training else Part.FORWARD, run.training)
    result = AnalyticPredictor().predict(graph, default_cluster(load_device("v100_pcie_32gb")))
    assert not result.uncovered_ops and np.isfinite(result.latency_us).all()


@pytest.mark.mirror
def test_labels_of_the_mirror_are_read(mirror: Path) -> None:
    labels = read_model_labels(mirror)
    assert len(labels) > 100 and all(label.total_us > 0 for label in labels)
    assert {label.device for label in labels} >= {"Tesla P4", "NVIDIA L4", "NVIDIA A100 80GB PCIe"}
