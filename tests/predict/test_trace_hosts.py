"""Host work as the trace took it: the toy's own latencies, moved by the speeds of hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gnnperf.predict.trace_hosts import SAME, host_ratio, trace_hosts, who_tells

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import Source
from gnnperf.gnn.checkpoint import save_checkpoint
from gnnperf.hardware import load_cluster, load_device, load_host
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec
from gnnperf.predict import api
from gnnperf.predict.api import predict
from gnnperf.predict.asked import to_request
from gnnperf.predict.config import Hosts, Mode, PredictConfig
from gnnperf.predict.request import Request
from gnnperf.predict.target import Target
from gnnperf.whatif import ChangeCluster
from tests.generate.transformer.plans import small
from tests.predict.doubled import doubling
from tests.toys import two_rank_graph

TOY = two_rank_graph()
HOST = (TOY.nodes["node_type"] == "host").to_numpy()


def by_trace(**changes: object) -> np.ndarray:
    """[num_nodes] us on a changed DGX-1."""
    cluster = load_cluster("dgx1_v100")
    told = trace_hosts([TOY], cluster, AnalyticPredictor()).predict(TOY, replace(cluster, **changes))  # type: ignore[arg-type]
    return told.latency_us


def test_means_of_the_trace_answer_for_host_work_alone() -> None:
    base = AnalyticPredictor().predict(TOY, load_cluster("dgx1_v100"))
    found = trace_hosts([TOY], load_cluster("dgx1_v100"), AnalyticPredictor()).predict(TOY, load_cluster("dgx1_v100"))
    measured_us = TOY.nodes["latency_us"].to_numpy()
    keys = np.array([f"{segment} {op}" for segment, op in zip(TOY.nodes["segment"], TOY.nodes["op_name"], strict=True)])
    for key in set(keys[HOST]):
        of_kind = HOST & (keys == key)
        assert found.latency_us[of_kind] == pytest.approx(measured_us[of_kind].mean())
    assert set(found.source[HOST]) == {Source.TRACE} and "this trace" in found.reasons[0]
    assert np.array_equal(found.latency_us[~HOST], base.latency_us[~HOST], equal_nan=True)
    assert np.array_equal(found.source[~HOST], base.source[~HOST])


def test_faster_hosts_take_less() -> None:
    own, new = load_cluster("dgx1_v100").host, load_cluster("hgx_h100").host
    assert own is not None and new is not None
    ratio = new.single_thread_speed / own.single_thread_speed
    assert ratio > 1
    assert by_trace(host=new)[HOST] == pytest.approx(by_trace()[HOST] / ratio)
    assert by_trace(host_speed=2.0)[HOST] == pytest.approx(by_trace()[HOST] / 2)
    unknown = replace(load_cluster("dgx1_v100"), host=None, host_speed=1.5)
    assert host_ratio(unknown, replace(load_cluster("hgx_h100"), host_speed=3.0)) == 2.0


def test_asked_of_predict(trace: Path) -> None:
    asked = Request(trace, mode=Mode.analytic, hosts=Hosts.trace)
    here, there = predict(asked), predict(replace(asked, hardware=load_device("h100_sxm")))
    assert SAME in here.warnings and SAME not in there.warnings
    assert here.provenance["hosts"] == "trace"
    measured_us = here.prediction.graph.nodes["latency_us"].to_numpy()
    assert here.prediction.latency_us[HOST].sum() == pytest.approx(measured_us[HOST].sum(), rel=0.01)
    own, new = load_cluster("dgx1_v100").host, load_cluster("hgx_h100").host
    assert own is not None and new is not None
    ratio = new.single_thread_speed / own.single_thread_speed
    assert there.prediction.latency_us[HOST] == pytest.approx(here.prediction.latency_us[HOST] / ratio)
    assert there.prediction.latency_us[3] < here.prediction.latency_us[3]  # a product, on the newer device


def unnamed(cluster: ClusterSpec) -> ClusterSpec:
    return replace(cluster, host=None)


def test_a_host_asked_for_beside_the_cluster_moves_it_as_an_edit_does(trace: Path) -> None:
    cluster = load_cluster("dgx1_v100")
    asked = Request(trace, mode=Mode.analytic, hosts=Hosts.trace)
    there = predict(replace(asked, cluster=replace(cluster, host=load_host("xeon_platinum_8480"), host_speed=1.7)))
    edited = predict(replace(asked, whatif=(ChangeCluster("dgx1_v100", host="xeon_platinum_8480"),)))
    assert edited.whatif is not None
    assert there.prediction.latency_us[HOST] == pytest.approx(edited.whatif.answer.prediction.latency_us[HOST])
    assert SAME not in there.warnings
    assert any("xeon_e5_2698_v4 (assumed" in w and "to xeon_platinum_8480" in w for w in there.warnings)


def test_a_host_that_nobody_names_leaves_it_as_it_is(trace: Path) -> None:
    asked = Request(trace, mode=Mode.analytic, hardware=load_device("h100_sxm"), hosts=Hosts.trace)
    told = predict(replace(asked, cluster=unnamed(load_cluster("hgx_h100"))))
    (said,) = (warning for warning in told.warnings if "as it is, from xeon_e5_2698_v4" in warning)
    assert "to the unnamed host of cluster 'hgx_h100'" in said
    twice = predict(replace(asked, cluster=replace(unnamed(load_cluster("hgx_h100")), host_speed=2.0)))
    assert twice.prediction.latency_us[HOST] == pytest.approx(told.prediction.latency_us[HOST] / 2)
    assert any("the unnamed host of cluster 'hgx_h100'" in warning for warning in twice.warnings)


def test_calls_that_the_trace_lacks_are_the_bases() -> None:
    cluster = load_cluster("dgx1_v100")
    events, ops = TOY.nodes["event_name"].astype(object), TOY.nodes["op_name"].astype(object)
    launch = int(np.flatnonzero(HOST & (TOY.nodes["segment"] == "T4").to_numpy())[0])
    segments = TOY.nodes["segment"].astype(object)
    other = int(np.flatnonzero(HOST & (segments != "T4").to_numpy() & ops.notna().to_numpy())[0])
    events[launch], ops[other] = "cudaMallocAsync", "mylib::new"
    graph = replace(TOY, nodes=TOY.nodes.assign(event_name=events.astype("category"), op_name=ops.astype("category")))
    told = trace_hosts([TOY], cluster, AnalyticPredictor()).predict(graph, cluster)
    base = AnalyticPredictor().predict(graph, cluster)
    assert np.array_equal(told.latency_us[[launch, other]], base.latency_us[[launch, other]])
    assert set(told.source[[launch, other]]) == {Source.ANALYTIC}
    rest = HOST & ~np.isin(np.arange(len(HOST)), [launch, other])
    assert set(told.source[rest]) == {Source.TRACE}


V100, H100, CPU = (load_device(name) for name in ("v100_sxm2_32gb", "h100_sxm", "epyc_7742"))


@pytest.mark.parametrize(("traced", "asked", "tells"), [
    (V100, V100, Hosts.model), (V100, H100, Hosts.trace), (None, H100, Hosts.model), (V100, CPU, Hosts.model),
    (CPU, H100, Hosts.model), (CPU, load_device("epyc_9654"), Hosts.model),
])  # fmt: skip
def test_who_tells_unless_it_is_said(traced: DeviceSpec | None, asked: DeviceSpec, tells: Hosts) -> None:
    target = Target(replace(load_cluster("dgx1_v100"), device=asked), traced)
    assert who_tells(Hosts.auto, target) is tells
    assert who_tells(Hosts.trace, target) is Hosts.trace


def test_the_default_takes_the_trace_for_another_gpu(trace: Path, tmp_path: Path) -> None:
    there, small_network = Request(trace, hardware=load_device("h100_sxm")), doubling(tmp_path)
    save_checkpoint(tmp_path / "trained.pt", small_network)
    found = {
        "trace": [predict(there), predict(replace(there, mode=Mode.analytic))],
        "model": [predict(Request(trace)), predict(replace(there, checkpoint=tmp_path / "trained.pt")),
                  predict(replace(there, checkpoint=tmp_path / "trained.pt", mode=Mode.gnn)),
                  predict(Request(plan=small(), hardware=load_device("a100_sxm_80gb")))],
    }  # fmt: skip
    for tells, answers in found.items():
        assert [answer.provenance["hosts"] for answer in answers] == [tells] * len(answers)
    assert api.NO_CHECKPOINT in found["trace"][0].warnings


def test_the_key_reaches_the_question() -> None:
    assert to_request(PredictConfig(trace="t.json", hosts=Hosts.trace)).hosts is Hosts.trace


def test_an_edit_of_the_host_moves_it(trace: Path) -> None:
    edit = ChangeCluster("dgx1_v100", host="xeon_platinum_8480")
    answer = predict(Request(trace, mode=Mode.analytic, hosts=Hosts.trace, whatif=(edit,)))
    assert answer.whatif is not None
    before, after = answer.prediction.latency_us[HOST], answer.whatif.answer.prediction.latency_us[HOST]
    assert (after < before).all() and np.ptp(after / before) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("mode", [Mode.gnn, Mode.replay])
def test_refused_where_it_has_no_use(trace: Path, mode: Mode) -> None:
    request = Request(trace, mode=mode, hosts=Hosts.trace, checkpoint=trace if mode is Mode.gnn else None)
    with pytest.raises(InputError, match=f"hosts: has no use in mode={mode}"):
        predict(request)


def test_a_plan_has_none() -> None:
    with pytest.raises(InputError, match="hosts: a plan has no host work that was traced"):
        predict(Request(plan=small(), hardware=load_device("a100_sxm_80gb"), hosts=Hosts.trace))
