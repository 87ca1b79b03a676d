"""The checkpoint of op tables in predictions: corrected where it has ground, the analytical answer elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import prepared

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import Source
from gnnperf.gnn import checkpoint_formats
from gnnperf.gnn.finetune import load_start
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.hardware import default_cluster, load_device
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict import api
from gnnperf.predict.api import models_for, predict
from gnnperf.predict.request import Mode, Request, TraceEvidence
from research.pretraining.op_checkpoint import load_op_checkpoint, save_op_checkpoint
from research.pretraining.predictor import NetworkOnly, OpTables, PretrainedPredictor
from tests.gnn.finetune.test_begin import CONFIG, begun, residuals
from tests.predict.answers import GEMM_1
from tests.research.op_networks import checkpoint
from tests.toys import two_rank_graph

GEMMS = [3, GEMM_1]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that answers float32 products on V100-PCIE."""
    file = tmp_path_factory.mktemp("model") / "ops.pt"
    save_op_checkpoint(file, checkpoint())
    return file


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_formats, "plugin_names", lambda group: ("op-tables",))
    monkeypatch.setattr(checkpoint_formats, "load_plugin", lambda group, name, where: OpTables)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that reads as the toy graph."""
    monkeypatch.setattr(api, "load_graph", lambda paths, cache_dir: two_rank_graph())
    (tmp_path / "toy.json").write_text("{}")
    return tmp_path / "toy.json"


def cluster(name: str) -> ClusterSpec:
    return default_cluster(load_device(name))


def test_only_kernels_that_it_was_trained_on_are_corrected(path: Path) -> None:
    graph, on = two_rank_graph().for_predictors(), cluster("v100_pcie_32gb")
    base, result = AnalyticPredictor().predict(graph, on), PretrainedPredictor(checkpoint()).predict(graph, on)
    changed = np.flatnonzero(result.latency_us != base.latency_us)
    assert changed.tolist() == GEMMS
    assert np.flatnonzero(result.source == Source.GNN).tolist() == GEMMS
    assert result.latency_us[3] == result.latency_us[GEMM_1]  # the same call
    assert np.array_equal(result.analytic_latency_us, base.latency_us)
    assert np.array_equal(result.scheduled_us, result.latency_us)  # the step adds up what the network says


@pytest.mark.parametrize("name", ["cpu_generic", "t4", "mi300x"])
def test_outside_it_is_the_analytical_answer(path: Path, name: str) -> None:
    graph = two_rank_graph().for_predictors()
    base, result = (p.predict(graph, cluster(name)) for p in (AnalyticPredictor(), PretrainedPredictor(checkpoint())))
    assert np.array_equal(result.latency_us, base.latency_us)
    assert (result.source == base.source).all()


def test_a_split_call_shares_its_correction(path: Path) -> None:
    """Two kernels of one call get what the call's one kernel gets, each half."""
    graph, on = two_rank_graph(), cluster("v100_pcie_32gb")
    nodes = graph.nodes.assign(num_siblings=2, flops=graph.nodes["flops"] / 2, bytes=graph.nodes["bytes"] / 2)
    halves = replace(graph, nodes=nodes)
    base, result = (p.predict(halves, on) for p in (AnalyticPredictor(), PretrainedPredictor(checkpoint())))
    assert result.source[3] == Source.GNN
    assert result.latency_us[3] != base.latency_us[3]


def test_the_network_only_leaves_the_rest_uncovered(path: Path) -> None:
    graph = two_rank_graph().for_predictors()
    result = NetworkOnly(PretrainedPredictor(checkpoint())).predict(graph, cluster("v100_pcie_32gb"))
    assert np.flatnonzero(result.source == Source.GNN).tolist() == GEMMS
    assert np.isnan(result.latency_us[0]) and np.isnan(result.scheduled_us[0])
    assert result.latency_us[-1] == 0  # a link takes no time
    assert "aten::mm" in result.uncovered_ops  # its host segments


def test_modes_with_a_checkpoint_of_op_tables(path: Path) -> None:
    base = load_op_checkpoint(path)
    kinds = {mode: type(models_for(mode, path).model) for mode in (Mode.hybrid, Mode.gnn, Mode.analytic)}
    assert kinds == {Mode.hybrid: PretrainedPredictor, Mode.gnn: NetworkOnly, Mode.analytic: AnalyticPredictor}
    assert models_for(Mode.hybrid, path).checkpoint_sha256 == base.sha256


def test_a_prediction_names_the_checkpoint(trace: Path, path: Path) -> None:
    blind = Request(trace=trace, hardware=load_device("v100_pcie_32gb"), checkpoint=path, evidence=TraceEvidence.none)
    result = predict(blind)
    assert result.source_share["gnn"] > 0
    assert len(result.provenance["checkpoint_sha256"]) == 64


def test_a_network_of_op_tables_knows_kernels_and_devices_only(path: Path, tmp_path: Path) -> None:
    ops = load_start(path, CONFIG)
    data = prepared(tmp_path / "data", earlier=ops.earlier)
    network, trained = begun(ops, data), dict(ops.network().named_parameters())
    own = dict(network.named_parameters())
    assert torch.equal(own["layers.0.relations.rev_runs_on.weight"], trained["layers.0.relations.rev_runs_on.weight"])
    assert torch.equal(own["heads.compute.hidden.weight"], trained["heads.compute.hidden.weight"])
    assert not own["layers.0.relations.follows.weight"].any()
    assert not own["layers.1.out.weight"].any()
    torch.manual_seed(1)
    fresh = TypedGNN(CONFIG, data.vocabulary)
    assert torch.equal(own["encoders.host.linear.weight"], fresh.get_parameter("encoders.host.linear.weight"))
    assert data.constants == prepared(tmp_path / "data").constants  # its base is the data's own
    assert bool(checkpoint().own.weights["heads.compute.last.weight"].any())
    assert not any(answer.any() for answer in residuals(network, data).values())


def test_without_the_format_the_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_formats, "plugin_names", lambda group: ())
    with pytest.raises(InputError, match=r"not a gnnperf checkpoint.*pip install --editable ./research"):
        models_for(Mode.hybrid, path)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.pt").write_bytes(b"no tensors")
    with pytest.raises(InputError, match="not a checkpoint of gnnperf"):
        models_for(Mode.hybrid, tmp_path / "bad.pt")
