"""One prediction over several clusters, and that edits agree with hardware= and cluster=."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.schema import NodeType, Source
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.prediction import Prediction
from gnnperf.hardware import load_cluster, load_device
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict.edited import predict_edited, with_edits
from gnnperf.predict.target import choose_target
from gnnperf.whatif import OpLatency, apply
from gnnperf.whatif.edit import Edit
from gnnperf.whatif.hardware import ChangeCluster, ChangeDevice, ChangeLink
from tests.predict.answers import COLLECTIVE, GEMM_0, GEMM_1, Fixed, question, toy_answer
from tests.toys import two_rank_graph


@dataclass(frozen=True)
class ByDevice:
    """Twice as fast on an H100; its transfers take 60 us. `hole`: a node that it does not know there."""

    hole: int = -1

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        if cluster.device.name != "h100_sxm":
            return Fixed({GEMM_0: 100.0, GEMM_1: 120.0, COLLECTIVE: 50.0}).predict(graph, cluster)
        given = {GEMM_0: 50.0, GEMM_1: 60.0, COLLECTIVE: 60.0}
        return Fixed({**given, self.hole: float("nan")} if self.hole >= 0 else given).predict(graph, cluster)


def mixed(predictor: ByDevice, *edits: Edit) -> Prediction:
    return predict_edited(apply(two_rank_graph(), edits), predictor, load_cluster("dgx1_v100"))


def test_every_node_is_reported_by_its_own_device_and_a_transfer_by_the_slower() -> None:
    result = mixed(ByDevice(), ChangeDevice("h100_sxm", (1,)))
    assert result.latency_us[[GEMM_0, GEMM_1, COLLECTIVE]].tolist() == [100.0, 60.0, 60.0]
    other = mixed(ByDevice(), ChangeDevice("h100_sxm", (0,)))
    assert other.latency_us[[GEMM_0, GEMM_1, COLLECTIVE]].tolist() == [50.0, 120.0, 60.0]


def test_the_mixed_step_waits_for_the_slow_rank() -> None:
    """Rank 0 on the old device: 10 + 100 + 60 + 5; all on the new one: 10 + 60 + 60 + 5."""
    unedited = toy_answer()
    for ranks, expected_us in (((1,), 175.0), (None, 135.0)):
        edits = (ChangeDevice("h100_sxm", ranks),)
        answer = with_edits(unedited, edits, ByDevice(), load_cluster("dgx1_v100"), question(unedited.label))
        assert answer.whatif is not None
        assert answer.whatif.step_time_us == expected_us
        assert answer.hardware == "v100_sxm2_32gb"
    assert answer.whatif is not None
    assert answer.whatif.answer.hardware == "h100_sxm"


def test_what_one_device_does_not_cover_is_not_covered() -> None:
    assert mixed(ByDevice(GEMM_1), ChangeDevice("h100_sxm", (1,))).uncovered_ops == {"aten::mm": 1}
    assert mixed(ByDevice(GEMM_1), ChangeDevice("h100_sxm", (0,))).uncovered_ops == {}
    result = mixed(ByDevice(COLLECTIVE), ChangeDevice("h100_sxm", (1,)))
    assert np.isnan(result.latency_us[COLLECTIVE])


def test_declared_latencies_hold_on_any_device() -> None:
    result = mixed(ByDevice(), OpLatency("aten::mm", us=7.0, rank=1), ChangeDevice("h100_sxm"))
    assert result.latency_us[[GEMM_0, GEMM_1]].tolist() == [50.0, 7.0]
    assert result.source[GEMM_1] == Source.DECLARED
    faster = mixed(ByDevice(), OpLatency("aten::mm", factor=0.5), ChangeDevice("h100_sxm"))
    assert faster.latency_us[GEMM_0] == 25.0


def by_key(hardware: str | None, cluster: str | None) -> np.ndarray:
    """[num_nodes] us: as hardware= and cluster= answer."""
    graph = two_rank_graph()
    device, spec = (
        (None if hardware is None else load_device(hardware)),
        (None if cluster is None else load_cluster(cluster)),
    )
    return AnalyticPredictor().predict(graph, choose_target(graph, device, spec).cluster).latency_us


def by_edit(*edits: Edit) -> np.ndarray:
    """[num_nodes] us: as edits of the same step answer."""
    graph = two_rank_graph()
    cluster = choose_target(graph, None, None).cluster
    return predict_edited(apply(graph, edits), AnalyticPredictor(), cluster).latency_us


def test_edits_agree_with_hardware_and_cluster() -> None:
    np.testing.assert_array_equal(by_edit(ChangeDevice("a100_sxm_80gb")), by_key("a100_sxm_80gb", "dgx1_v100"))
    np.testing.assert_array_equal(by_edit(ChangeCluster("single")), by_key(None, "single"))
    device, cluster = ChangeDevice("h100_sxm"), ChangeCluster("hgx_h100", host="xeon_e5_2698_v4")
    np.testing.assert_allclose(by_edit(device, cluster), by_key("h100_sxm", "hgx_h100"))
    np.testing.assert_allclose(by_edit(cluster, device), by_key("h100_sxm", "hgx_h100"))
    assert not np.array_equal(by_key("h100_sxm", "hgx_h100"), by_key(None, None))


def test_only_hosts_differ_where_the_host_moves() -> None:
    """cluster= takes host overheads as they hold for its own host; an edit moves them from the host that was."""
    ours, theirs = by_edit(ChangeDevice("h100_sxm"), ChangeCluster("hgx_h100")), by_key("h100_sxm", "hgx_h100")
    is_host = (two_rank_graph().nodes["node_type"] == NodeType.HOST).to_numpy()
    np.testing.assert_allclose(ours[~is_host], theirs[~is_host])
    old, new = (load_cluster(name).host for name in ("dgx1_v100", "hgx_h100"))
    assert old is not None
    assert new is not None
    np.testing.assert_allclose(ours[is_host], theirs[is_host] * old.single_thread_speed / new.single_thread_speed)


def test_a_slower_link_is_slower_and_only_it() -> None:
    fast, slow = by_edit(), by_edit(ChangeLink(bandwidth_factor=0.5))
    assert slow[COLLECTIVE] > fast[COLLECTIVE]
    assert np.delete(slow, COLLECTIVE).tolist() == np.delete(fast, COLLECTIVE).tolist()
    one = by_edit(ChangeLink(bandwidth_factor=0.5, ranks=(1,)))
    assert one[COLLECTIVE] == slow[COLLECTIVE]


def test_requested_collective_models_hold_in_every_cluster() -> None:
    unedited = toy_answer()
    edits = (ChangeDevice("h100_sxm"), ChangeCluster("hgx_h100", host="xeon_e5_2698_v4"))
    args = (unedited, edits, AnalyticPredictor(), load_cluster("dgx1_v100"), question(unedited.label))
    fitted, specified = with_edits(*args), with_edits(*args, "specification")
    given = [answer.whatif.answer.prediction.latency_us for answer in (fitted, specified) if answer.whatif]
    graph, own = two_rank_graph(), load_cluster("hgx_h100", "h100_sxm")
    for latency_us, cluster in zip(given, (own, replace(own, collectives={})), strict=True):
        expected = AnalyticPredictor().predict(graph, cluster).latency_us
        assert latency_us[COLLECTIVE] == pytest.approx(expected[COLLECTIVE])
    assert given[0][COLLECTIVE] != given[1][COLLECTIVE]
