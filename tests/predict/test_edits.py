"""The grammar of whatif, and both steps from one predictor."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from gnnperf import whatif
from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, NodeType, Source
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec, load_cluster, load_device
from gnnperf.predict import Request, StepPrediction, predict
from gnnperf.predict.edited import predict_edited, with_edits
from gnnperf.predict.target import choose_target
from gnnperf.predict.whatif import read_edits
from gnnperf.report import document, print_summary
from gnnperf.report.text import whatif_lines
from tests.generate.transformer.plans import small
from tests.predict.predictions import COLLECTIVE, GEMM_0, GEMM_1, Fixed, question, toy_prediction
from tests.report.page.pages import page_of
from tests.toys import two_rank_graph


def test_every_edit() -> None:
    result = read_edits([
        {"latency": {"op": "aten::mm", "factor": 0.5}}, {"straggler": {"rank": 1, "factor": 2}}, {"stall": {"us": 3.0}},
        {"batch": {"factor": 2}}, {"dtype": {"of": "float32", "to": "bfloat16"}}, {"fuse": {"phase": "forward"}},
        {"compress": {"kind": "all_reduce", "to": "float16"}}, {"world_size": {"ranks": 16}},
        {"device": {"to": "h100_sxm"}}, {"link": {"rate_gbit_per_s": 1, "link": "inter"}},
        {"cluster": {"to": "hgx_h100", "nodes": 2}}, {"sequence": {"to": 128}}, {"horizontal": {"models": 4}},
        {"pause": {"us": 5, "rank": 1}}, {"block": {"collective": "all_reduce"}},
        {"overlap": {"until": "optimizer"}}, {"stream": {"op": "copy"}}, {"table_size": {"factor": 4}},
    ])  # fmt: skip
    assert result == (
        whatif.OpLatency("aten::mm", 0.5), whatif.Straggler(1, 2), whatif.InputStall(3.0), whatif.ScaleBatch(2),
        whatif.ChangeDtype("bfloat16"), whatif.FuseElementwise("forward"),
        whatif.CompressMessages("all_reduce", to="float16"), whatif.WorldSize(16),
        whatif.ChangeDevice("h100_sxm"), whatif.ChangeLink(rate_gbit_per_s=1, link="inter"),
        whatif.ChangeCluster("hgx_h100", 2), whatif.ScaleSequence(to=128), whatif.FuseHorizontally(models=4),
        whatif.DeclarePause(5, 1), whatif.Block("all_reduce"), whatif.WaitLater(until="optimizer"),
        whatif.MoveToStream("copy"), whatif.ResizeTables(4),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"stragler": {"rank": 1, "factor": 2}}, "whatif.0.: unknown edit 'stragler'.*did you mean 'straggler'"),
        ({"latency": {"op": "x", "factr": 2}}, "unknown key 'factr'.*did you mean 'factor'"),
        ({"routing": {"skew": 1.2}}, "which ops belong to experts. What to do: state the program as a plan"),
        ({"latency": {"factor": 2}}, "op is required. Allowed: the keys op, factor, us"),
        ({"straggler": {"rank": 1.5, "factor": 2}}, "whatif.0..straggler.rank: bad value 1.5. Allowed: a whole number"),
        ({"straggler": {"rank": True, "factor": 2}}, "bad value True"),
        ({"straggler": {"rank": 1, "factor": -2}}, "factor of a straggler.*above 0"),
        ({"batch": 2}, "bad value 2. Allowed: a mapping of factor"),
        ({"batch": {"factor": 2}, "stall": {"us": 2}}, "one edit with its settings"),
        ("batch", "one edit with its settings"),
        ({"device": {"to": "h100_smx"}}, "whatif.0..device: .*no hardware named 'h100_smx'; did you mean h100_sxm"),
    ],
)
def test_one_clear_message(entry: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_edits([entry])


def test_both_steps_by_hand() -> None:
    """10 + 120 + 50 + 5 = 185; gemms twice as long: 10 + 240 + 50 + 5, rank 1's at 7 us: rank 0 is last, 10 + 100."""
    op = str(toy_prediction().prediction.graph.nodes["op_name"][GEMM_0])
    unedited, edits = toy_prediction(), (whatif.OpLatency(op, factor=2.0),)
    args = Fixed(), load_cluster("hgx8"), question(unedited.label)
    estimate = with_edits(unedited, edits, *args)
    assert (estimate.step_time_us, estimate.whatif.step_time_us) == (185.0, 305.0)  # type: ignore[union-attr]
    assert estimate.whatif_difference_us == 120.0
    declared = with_edits(unedited, (whatif.OpLatency(op, us=7.0, rank=1),), *args)
    assert declared.whatif_difference_us == -20.0
    assert declared.whatif.prediction.prediction.source[GEMM_1] == Source.DECLARED  # type: ignore[union-attr]
    assert estimate.whatif.prediction.step_time_error is None  # type: ignore[union-attr]  # nothing measured belongs to it


def test_what_cannot_be_known_is_a_warning_and_everything_is_reported() -> None:
    unedited = toy_prediction()
    estimate = with_edits(
        unedited, (whatif.Straggler(1, 2.0),), Fixed(), load_cluster("hgx8"), question(unedited.label)
    )
    assert estimate.whatif is not None and any("transfers down" in one for one in estimate.whatif.unknown)
    assert any("not known:" in line and "transfers down" in line for line in whatif_lines(estimate))
    assert estimate.warnings == unedited.warnings
    result = document(estimate)["whatif"]
    assert result["difference_us"] == result["step_time_us"] - 185.0
    assert result["edits"] == ["straggler=rank:1,factor:2"]
    assert result["difference_share"] == pytest.approx(result["difference_us"] / 185.0)
    assert "what if: 320 us, unedited 185 us, difference +135 us (+73.0 %)" in page_of(estimate)
    console = Console(width=120, record=True, file=io.StringIO())
    print_summary(estimate, onto=console)
    assert "what if: 320 us" in console.export_text()


def test_steps_of_several_lengths_have_quantiles(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("128\n64\n128\n64\n128\n128\n")
    trace = Path(__file__).parents[2] / "datasets/cpu-lengths/gpt_l2_w128_s192_b8_len64_x2_lo/1"

    def edited(**sequence: object) -> StepPrediction:
        return predict(Request(trace=trace, whatif=[{"sequence": sequence}], memory=False, findings=False))

    several, longer = edited(lengths=str(tmp_path / "lengths.csv")), edited(to=128)
    assert several.whatif is not None and longer.whatif is not None
    assert several.whatif.step_time_us == longer.whatif.step_time_us > 1.2 * several.step_time_us  # the median length
    low, middle, high = several.whatif.quantiles_us.values()
    assert (low, middle, high) == pytest.approx((several.step_time_us, *[longer.whatif.step_time_us] * 2))
    assert document(several)["whatif"]["step_time_quantiles_us"] == {"0.1": low, "0.5": middle, "0.9": high}
    assert "median length of 6 steps" in "".join(whatif_lines(several))
    with pytest.raises(InputError, match="once in a list"):
        predict(Request(trace=trace, whatif=[{"sequence": {"lengths": str(tmp_path / "lengths.csv")}}] * 2))


def test_a_work_that_no_one_reports_is_stated() -> None:
    unedited = toy_prediction()
    holes = Fixed({GEMM_1: float("nan")})
    estimate = with_edits(unedited, (whatif.Straggler(0, 2.0),), holes, load_cluster("hgx8"), question(unedited.label))
    assert estimate.warnings[0].startswith("What if: nodes that are not covered are left out: 1 with")


def test_a_grown_job_is_placed_on_the_cluster_anew() -> None:
    """Eight nodes: one of 8 ranks each before, eight of 64 each then, as for the plan of 64 replicas itself."""
    device, cluster = load_device("a100_sxm_80gb"), replace(load_cluster("dgx_a100"), nodes=8)
    grown = predict(Request(plan=small(1, 1, 8), hardware=device, cluster=cluster, whatif=[whatif.WorldSize(64)]))
    wanted = predict(Request(plan=small(1, 1, 64), hardware=device, cluster=cluster))
    assert "Ranks with the same role are in the graph once; each stands for 8." in grown.notes
    assert grown.whatif is not None
    assert grown.whatif.step_time_us == pytest.approx(wanted.step_time_us, rel=1e-12)
    with pytest.raises(InputError, match="64 ranks do not fit on 1 node"):
        one = replace(cluster, nodes=1)
        predict(Request(plan=small(1, 1, 8), hardware=device, cluster=one, whatif=[whatif.WorldSize(64)]))


class ByDevice:
    """Twice as fast on an H100; its transfers take 60 us."""

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        if cluster.device.name != "h100_sxm":
            return Fixed({GEMM_0: 100.0, GEMM_1: 120.0, COLLECTIVE: 50.0}).predict(graph, cluster)
        return Fixed({GEMM_0: 50.0, GEMM_1: 60.0, COLLECTIVE: 60.0}).predict(graph, cluster)


def test_the_step_on_another_device() -> None:
    """10 + 60 + 60 + 5; the unedited step stays on its own."""
    unedited = toy_prediction()
    args = ByDevice(), load_cluster("dgx1_v100"), question(unedited.label)
    estimate = with_edits(unedited, (whatif.ChangeDevice("h100_sxm"),), *args)
    assert estimate.whatif is not None
    assert estimate.whatif.step_time_us == 135.0
    assert (estimate.hardware, estimate.whatif.prediction.hardware) == ("v100_sxm2_32gb", "h100_sxm")


def test_declared_latencies_hold_on_any_device() -> None:
    for declared, expected_us in ((whatif.OpLatency("aten::mm", us=7.0, rank=1), [50.0, 7.0]),
                                  (whatif.OpLatency("aten::mm", factor=0.5), [25.0, 30.0])):  # fmt: skip
        edited = whatif.apply(two_rank_graph(), (declared, whatif.ChangeDevice("h100_sxm")))
        result = predict_edited(edited, ByDevice(), load_cluster("dgx1_v100"))
        assert result.latency_us[[GEMM_0, GEMM_1]].tolist() == expected_us
        assert (result.source[GEMM_1] == Source.DECLARED) == (declared.us is not None)


def by_key(hardware: str | None, cluster: str | None) -> np.ndarray:
    """[num_nodes] us: as hardware= and cluster= answer."""
    graph = two_rank_graph()
    device, spec = (
        (None if hardware is None else load_device(hardware)),
        (None if cluster is None else load_cluster(cluster)),
    )
    return AnalyticPredictor().predict(graph, choose_target(graph, device, spec).cluster).latency_us


def by_edit(*edits: whatif.Edit) -> np.ndarray:
    """[num_nodes] us: as edits of the same step answer."""
    graph = two_rank_graph()
    cluster = choose_target(graph, None, None).cluster
    return predict_edited(whatif.apply(graph, edits), AnalyticPredictor(), cluster).latency_us


def test_edits_agree_with_hardware_and_cluster() -> None:
    np.testing.assert_array_equal(by_edit(whatif.ChangeDevice("a100_sxm_80gb")), by_key("a100_sxm_80gb", "dgx1_v100"))
    np.testing.assert_array_equal(by_edit(whatif.ChangeCluster("single")), by_key(None, "single"))
    device, cluster = whatif.ChangeDevice("h100_sxm"), whatif.ChangeCluster("hgx_h100")
    np.testing.assert_allclose(by_edit(device, cluster), by_key("h100_sxm", "hgx_h100"))
    np.testing.assert_allclose(by_edit(cluster, device), by_key("h100_sxm", "hgx_h100"))
    assert not np.array_equal(by_key("h100_sxm", "hgx_h100"), by_key(None, None))


def test_only_hosts_differ_where_the_host_stays() -> None:
    stays = whatif.ChangeCluster("hgx_h100", host="xeon_e5_2698_v4")
    ours = by_edit(whatif.ChangeDevice("h100_sxm"), stays)
    theirs = by_key("h100_sxm", "hgx_h100")
    is_host = (two_rank_graph().nodes["node_type"] == NodeType.HOST).to_numpy()
    np.testing.assert_allclose(ours[~is_host], theirs[~is_host])
    old, new = (load_cluster(name).host for name in ("dgx1_v100", "hgx_h100"))
    assert old is not None
    assert new is not None
    np.testing.assert_allclose(ours[is_host], theirs[is_host] * new.single_thread_speed / old.single_thread_speed)


def test_a_slower_link_is_slower_and_only_it() -> None:
    fast, slow = by_edit(), by_edit(whatif.ChangeLink(bandwidth_factor=0.5))
    assert slow[COLLECTIVE] > fast[COLLECTIVE]
    assert np.delete(slow, COLLECTIVE).tolist() == np.delete(fast, COLLECTIVE).tolist()


def test_requested_collective_models_hold_in_every_cluster() -> None:
    unedited = toy_prediction()
    edits = (whatif.ChangeDevice("h100_sxm"), whatif.ChangeCluster("hgx_h100", host="xeon_e5_2698_v4"))
    args = (unedited, edits, AnalyticPredictor(), load_cluster("dgx1_v100"), question(unedited.label))
    fitted, specified = with_edits(*args), with_edits(*args, "specification")
    given = [estimate.whatif.prediction.prediction.latency_us for estimate in (fitted, specified) if estimate.whatif]
    graph, own = two_rank_graph(), load_cluster("hgx_h100", "h100_sxm")
    for latency_us, cluster in zip(given, (own, replace(own, collectives={})), strict=True):
        expected = AnalyticPredictor().predict(graph, cluster).latency_us
        assert latency_us[COLLECTIVE] == pytest.approx(expected[COLLECTIVE])
    assert given[0][COLLECTIVE] != given[1][COLLECTIVE]


def test_an_edit_states_how_much_measured_work_it_changes(trace: Path) -> None:
    """Of 100 + 120 us of products and a transfer of 50; the path: host 10, product 120, transfer 50, wait 5."""
    estimate = predict(Request(trace=trace, whatif=[whatif.OpLatency("aten::mm", 2.0)]))
    assert estimate.whatif is not None
    assert estimate.whatif.result[-1].startswith(
        "0.22 of 0.27 ms on devices and links change (0 % of it without a model"
    )
    assert (
        "changed nodes hold 0.12 of the 0.185 ms of the critical path, and 0.24 of 0.305 ms"
        in estimate.whatif.result[-1]
    )


def test_a_plan_with_a_larger_batch_has_its_memory() -> None:
    plan, device = small(2, 1, 1, micro_batch=5), load_device("a100_sxm_80gb")
    larger = replace(plan, schedule=replace(plan.schedule, micro_batch=10, global_batch=2 * plan.schedule.global_batch))
    edited = predict(Request(plan=plan, hardware=device, whatif=[whatif.ScaleBatch(2)], findings=False, memory=True))
    wanted = predict(Request(plan=larger, hardware=device, findings=False, memory=True))
    assert edited.whatif is not None
    assert edited.whatif.step_time_us == pytest.approx(wanted.step_time_us)
    sizes = [[rank.peak.peak_bytes for rank in one.peak_memory] for one in (edited.whatif.prediction, wanted)]
    assert sizes[0] == sizes[1]
    unknown = predict(
        Request(plan=plan, hardware=device, whatif=[whatif.FuseElementwise()], findings=False, memory=True)
    )
    assert any("peak memory of a plan with FuseElementwise" in note for note in unknown.notes)
