"""The checkpoint of op tables in predictions: corrected where it has ground, the analytical answer elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import Source
from gnnperf.gnn.pretrain.op_checkpoint import save_op_checkpoint
from gnnperf.hardware import default_cluster, load_device
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict import api
from gnnperf.predict.api import answers_for, predict
from gnnperf.predict.config import Mode
from gnnperf.predict.pretrained import SHIPPED, NetworkAlone, PretrainedPredictor
from gnnperf.predict.request import Request
from tests.op_networks import checkpoint
from tests.predict.answers import GEMM_1
from tests.toys import two_rank_graph

GEMMS = [3, GEMM_1]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that answers float32 products on V100-PCIE."""
    file = tmp_path_factory.mktemp("model") / "ops.pt"
    save_op_checkpoint(file, checkpoint())
    return file


def cluster(name: str) -> ClusterSpec:
    return default_cluster(load_device(name))


def test_only_kernels_that_it_was_trained_on_are_corrected(path: Path) -> None:
    graph, on = two_rank_graph().for_predictors(), cluster("v100_pcie_32gb")
    base, found = AnalyticPredictor().predict(graph, on), PretrainedPredictor(path).predict(graph, on)
    changed = np.flatnonzero(found.latency_us != base.latency_us)
    assert changed.tolist() == GEMMS
    assert np.flatnonzero(found.source == Source.GNN).tolist() == GEMMS
    assert found.latency_us[3] == found.latency_us[GEMM_1]  # the same call
    assert np.array_equal(found.analytic_latency_us, base.latency_us)
    assert np.array_equal(found.scheduled_us, found.latency_us)  # the step adds up what the network says


@pytest.mark.parametrize("name", ["cpu_generic", "t4", "mi300x"])
def test_elsewhere_it_is_the_analytical_answer(path: Path, name: str) -> None:
    graph = two_rank_graph().for_predictors()
    base, found = (p.predict(graph, cluster(name)) for p in (AnalyticPredictor(), PretrainedPredictor(path)))
    assert np.array_equal(found.latency_us, base.latency_us)
    assert (found.source == base.source).all()


def test_a_cpu_never_opens_the_file(tmp_path: Path) -> None:
    found = PretrainedPredictor(tmp_path / "nothing.pt").predict(two_rank_graph(), cluster("cpu_generic"))
    assert not np.isnan(found.latency_us[3])


def test_a_split_call_shares_its_correction(path: Path) -> None:
    """Two kernels of one call get what the call's one kernel gets, each half."""
    graph, on = two_rank_graph(), cluster("v100_pcie_32gb")
    nodes = graph.nodes.assign(num_siblings=2, flops=graph.nodes["flops"] / 2, bytes=graph.nodes["bytes"] / 2)
    halves = replace(graph, nodes=nodes)
    base, found = (p.predict(halves, on) for p in (AnalyticPredictor(), PretrainedPredictor(path)))
    assert found.source[3] == Source.GNN
    assert found.latency_us[3] != base.latency_us[3]


def test_alone_it_leaves_the_rest_uncovered(path: Path) -> None:
    graph = two_rank_graph().for_predictors()
    found = NetworkAlone(PretrainedPredictor(path)).predict(graph, cluster("v100_pcie_32gb"))
    assert np.flatnonzero(found.source == Source.GNN).tolist() == GEMMS
    assert np.isnan(found.latency_us[0]) and np.isnan(found.scheduled_us[0])
    assert found.latency_us[-1] == 0  # a link takes no time
    assert "aten::mm" in found.uncovered_ops  # its host segments


def test_modes_with_a_checkpoint_of_op_tables(path: Path) -> None:
    assert answers_for(Mode.hybrid, path).predictor == PretrainedPredictor(path)
    assert answers_for(Mode.gnn, path).predictor == NetworkAlone(PretrainedPredictor(path))
    assert answers_for(Mode.analytic, path).predictor == AnalyticPredictor()


def test_the_shipped_one_answers_where_none_is_given() -> None:
    assert answers_for(Mode.hybrid, None).predictor == PretrainedPredictor(SHIPPED)
    assert answers_for(Mode.analytic, None).predictor == AnalyticPredictor()


def test_an_answer_says_that_the_shipped_one_was_used(trace: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "SHIPPED", path)
    monkeypatch.setattr(api, "PretrainedPredictor", lambda: PretrainedPredictor(path))
    own = predict(Request(trace, hardware=load_device("v100_pcie_32gb")))
    told = "the shipped one answers for 2 of 2 kernels, the analytical model for all else but host work."
    assert any(told in warning for warning in own.warnings)
    assert len(own.provenance["checkpoint_sha256"]) == 64
    assert own.source_share["gnn"] > 0
    other = predict(Request(trace, hardware=load_device("t4")))
    assert api.NO_CHECKPOINT_BUT_HOSTS in other.warnings
    assert other.provenance["checkpoint_sha256"] is None


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.pt").write_bytes(b"no tensors")
    with pytest.raises(InputError, match="not a checkpoint of gnnperf"):
        answers_for(Mode.hybrid, tmp_path / "bad.pt")
