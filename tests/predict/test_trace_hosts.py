"""Host work as the trace took it: the toy's own latencies, moved by the speeds of hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.errors import InputError
from gnnperf.hardware import load_cluster, load_device
from gnnperf.plan import ChangeCluster
from gnnperf.predict.api import predict
from gnnperf.predict.config import Hosts, Mode
from gnnperf.predict.request import Request
from gnnperf.predict.trace_hosts import SAME, host_ratio, trace_hosts
from gnnperf.schema import Source
from tests.plan.transformer.plans import small
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
    assert set(found.source[HOST]) == {Source.MEASURED} and "this trace" in found.reasons[0]
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
