"""Each rule on a step that has what it looks for, and on one that has not; gains by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.analytic import AnalyticPredictor, roofs_of
from gnnperf.core import NodeType, Relation
from gnnperf.graph import build_graph, load_graph
from gnnperf.hardware import default_cluster, match_device
from gnnperf.predict.assembly import choose_step
from gnnperf.schedule import NUM_UNROLLED
from gnnperf.trace import read_run
from gnnperf.whatif.findings import Basis, Finding, Observed, find, measured_step
from gnnperf.whatif.findings.communication import exposed_communication, skewed_tables, slow_copies, straggler
from gnnperf.whatif.findings.host import host_bound, input_stall, launch_bound, stalls
from gnnperf.whatif.findings.kernels import misaligned_products, unfused_chains
from gnnperf.whatif.findings.search import Rule, repeated_models
from gnnperf.whatif.findings.serialized_streams import demands, serialized_streams
from tests.whatif.findings.steps import DEVICE, Steps


def only(step: Observed, rule: Rule) -> Finding:
    """The one finding of a rule."""
    (result,) = find(step, (rule,))
    return result


def _two_ranks(*work_us: float) -> Observed:
    """Ranks that work for so long and meet in an all-reduce of 10 us."""
    step = Steps(len(work_us))
    for rank, us in enumerate(work_us):
        step.work(us, rank)
    step.transfer(10.0)
    return step.observed()


def test_straggler_is_named_with_its_lateness_and_gain() -> None:
    result = only(_two_ranks(100.0, 160.0, 100.0), straggler)
    assert result.cause == "rank 1 is slower than the others, which wait for it"
    assert result.evidence == (
        "rank 1 comes last to 1 of 1 collectives, 60 us later than the others in the median, in sum",
        "its device work takes 160 us, that of the others 100 us in the median",
        "most of it at aten::op: 160 us, of the others 100 us in the median",
    )
    assert (result.gain_us, result.basis, result.at_most) == (60.0, Basis.MEASURED, False)
    assert result.gain_share == pytest.approx(60.0 / 170.0)
    assert result.edit == "rank 1 at aten::op as fast as the others (x 0.625)"


def test_a_pipeline_has_no_straggler() -> None:
    step = Steps(2)
    step.work(100.0, 0)
    step.work(10.0, 1)
    step.transfer(10.0, kind="send_recv")
    assert find(step.observed(), (straggler,)) == ()


def test_a_straggler_with_work_all_over_is_scaled_as_a_whole() -> None:
    step = Steps(2)
    for rank, factor in ((0, 1.0), (1, 2.0)):
        for op in ("a", "b", "c"):
            step.work(10.0 * factor, rank, op_name=op)
    step.transfer(10.0)
    result = only(step.observed(), straggler)
    assert result.edit == "{straggler:{rank:1,factor:0.5,work:device}}"
    assert result.gain_us == 30.0


@pytest.mark.mirror
@pytest.mark.parametrize("run", ["sst_long_a2a_optimizer", "sst_sleep_pl_dense_after_backward_2"])
def test_the_rank_that_sleeps_in_a_public_run_is_detected(mirror: Path, run: str) -> None:
    """One rank sleeps for about 1 s of a step of 1.06 s."""
    graph = load_graph(mirror / "pytorch+torchrec/examples/golden_training/trace" / run)
    label = choose_step(graph, None)
    result = find(measured_step(graph.step(label.step).for_predictors(), NUM_UNROLLED))[0]
    assert result.rule == "straggler"
    assert result.cause.startswith("rank 2 ")
    assert "the gap before c10d_functional::all_to_all_single: 1,001," in result.evidence[2]
    assert result.gain_share is not None
    assert result.gain_share > 0.8


def _communication(own_stream: bool) -> Observed:
    """A kernel of 100 us, a transfer of 50 us, a kernel of 60 us; the host waits for both streams at the end."""
    step, stream = Steps(2), 1 if own_stream else 0
    for rank in (0, 1):
        step.call(1.0, 100.0, rank)
    step.transfer(50.0, stream=stream)
    for rank in (0, 1):
        step.call(1.0, 60.0, rank)
    return step.observed()


def test_exposed_transfer_is_detected() -> None:
    """On one stream: 1 host... the transfer begins at 100 us and nothing computes next to it."""
    result = only(_communication(own_stream=False), exposed_communication)
    assert result.cause == "all_reduce is not hidden behind work"
    assert "50 us of transfers per rank, of which 50 us" in result.evidence[0]
    assert (result.gain_us, result.at_most) == (50.0, True)
    assert result.edit == "{latency:{op:all_reduce,factor:0}} (nothing left of it)"


def test_exposed_transfer_that_could_be_waited_for_later_is_moved() -> None:
    """CPU ranks: transfer of 50 us, waited for at once, then 100 us of work that does not need it."""
    step = Steps(2)
    for rank in (0, 1):
        step.host(1.0, rank, op_name="c10d::all_reduce")
    shared = step.transfer(50.0)
    for rank in (0, 1):
        step.edges.append((shared + 1 + rank, step.host(0.0, rank), "waits"))
        step.work(100.0, rank, input_dims="[[4]]")
        step.host(0.0, rank, op_name="aten::takes")
        step.work(10.0, rank, op_name="aten::takes", input_dims="[[7]]")
    result = only(step.observed(), exposed_communication)
    assert result.gain_us == pytest.approx(50.0)


def _calls(host_us: float, kernel_us: float, times: int = 5) -> Observed:
    step = Steps()
    for _ in range(times):
        step.call(host_us, kernel_us, op_name="aten::add")
    step.wait()
    return step.observed()


def test_host_that_holds_its_device_up_is_detected() -> None:
    """Launches at 0, 20, 40, 60, 80 us, each kernel 5 us; the host is done at 100 us, twice as fast at 50 us."""
    result = only(_calls(20.0, 5.0), host_bound)
    assert "devices are idle for 75.0 % of the step; for 75.0 % of it their host works" in result.evidence[0]
    assert result.evidence[1] == "most host time, all ranks: aten::add 100 us"
    assert result.gain_us == 50.0


def test_a_wait_for_untraced_ranks_is_no_host_work() -> None:
    """20 of 100 us of host time wait for peers: twice as fast, the host is done after 20 + 40 us."""
    step = _calls(20.0, 5.0)
    waits = np.flatnonzero((step.kind == NodeType.HOST) & (step.latency_us > 0))[-1]
    segment = step.graph.nodes["segment"].astype(object)
    step.graph.nodes["segment"] = segment.where(np.arange(len(segment)) != waits, "peer_wait")
    for one in (step, replace(other := _calls(20.0, 5.0), stall_us=np.arange(other.graph.num_nodes) == waits)):
        result = only(one, host_bound)  # a stall does not scale with the host either
        assert result.evidence[1] == "most host time, all ranks: aten::add 80 us"
        assert result.gain_us == 40.0
        assert only(one, launch_bound).evidence[0].startswith("4 of 5 calls")


def test_small_kernels_are_detected() -> None:
    """Without launches all five kernels of 5 us run one after the other: 25 us of 100."""
    result = only(_calls(20.0, 5.0), launch_bound)
    assert result.evidence == (
        "5 of 5 calls with kernels keep the device busy for less time than the host: 5.0 us against 20.0 us in the "
        "median",
        "100 us of a rank's step go into issuing them (mean over ranks); most often aten::add (5)",
    )
    assert (result.gain_us, result.at_most) == (75.0, True)


def test_kernels_of_unknown_latency_are_not_small() -> None:
    step = _calls(20.0, 5.0)
    kernels = step.kind == NodeType.COMPUTE
    assert (
        find(replace(step, known=~kernels, latency_us=np.where(kernels, 0.0, step.latency_us)), (launch_bound,)) == ()
    )


def _products(odd_us: float, odd_rows: int = 63, dtype: str = "float16") -> Observed:
    """An aligned product that takes twice what the model states, and another one of `odd_rows` rows."""
    step = Steps()
    columns: dict[str, Any] = {"op_name": "aten::mm", "family": "gemm", "dtype": dtype}
    one = step.call(1.0, 20.0, input_dims="[[64,64],[64,64]]", **columns)
    other = step.call(1.0, odd_us, input_dims=f"[[{odd_rows},64],[64,64]]", **columns)
    predicted_us = np.full(len(step.rows), np.nan)
    predicted_us[[one, other]] = 10.0
    return step.observed(analytic_us=predicted_us)


def test_misaligned_product_is_detected() -> None:
    """63 rows padded to 64: 60 us -> 2 x 10 us x 64 / 63."""
    result = only(_products(60.0), misaligned_products)
    assert "1 of 2 products on matrix units have a size that is no multiple of 16 bytes" in result.evidence[0]
    assert result.evidence[1] == "most often 63 x 64 x 64 (1)"
    assert (
        result.evidence[2] == "measured over analytical time, medians: float16 6.00; of aligned products float16 2.00"
    )
    assert result.gain_us == pytest.approx(60.0 - 20.0 * 64 / 63)


def test_products_that_are_slow_by_chance_isolated_are_none() -> None:
    """Of three odd ones two are as fast as the aligned one: so is their median."""
    step, predicted_us = Steps(), []
    for us, rows in ((20.0, 64), (20.0, 63), (20.0, 63), (100.0, 63)):
        predicted_us.append(step.call(1.0, us, op_name="aten::mm", family="gemm", dtype="float16",
                                 input_dims=f"[[{rows},64],[64,64]]"))  # fmt: skip
    model_us = np.full(len(step.rows), np.nan)
    model_us[predicted_us] = 10.0
    assert find(step.observed(analytic_us=model_us), (misaligned_products,)) == ()


def test_without_aligned_products_the_gain_is_not_known() -> None:
    step = Steps()
    step.call(1.0, 60.0, op_name="aten::mm", family="gemm", dtype="float16", input_dims="[[63,64],[64,64]]")
    result = only(step.observed(), misaligned_products)
    assert (result.gain_us, result.gain_share, result.edit) == (None, None, "")
    assert "prices no alignment" in result.unknown[0]


def _input(first_us: float) -> Observed:
    step = Steps()
    for us in (first_us, 2.0, 2.0):
        step.host(us)
        step.work(50.0)
    return step.observed()


def test_input_stall_is_detected_and_its_gain_is_the_stall() -> None:
    result = only(_input(102.0), input_stall)
    assert result.gain_us == 100.0
    assert "rank 0 does nothing that is recorded for 100 us longer" in result.evidence[0]


def test_the_start_of_a_window_without_marks_is_no_stall() -> None:
    step = _input(102.0)
    window = replace(step.graph.steps[0], name="window")
    assert find(replace(step, graph=replace(step.graph, steps=(window,))), (input_stall,)) == ()


def _copies(us: float, event: str = "Memcpy HtoD (Pageable -> Device)") -> Observed:
    step = Steps()
    step.call(1.0, us, node_type=NodeType.MEMORY, event_name=event, bytes=1e6, op_name="aten::copy_")
    step.call(1.0, 50.0)
    return step.observed()


def test_slow_copy_is_detected() -> None:
    """1 MB at 10 GB/s: 100 us."""
    result = only(_copies(400.0), slow_copies)
    assert "1 of 1 copies between host and device run at 2.5 GB/s, of 10 GB/s that pcie sustains" in result.evidence[0]
    assert result.evidence[1] == "1 of them from or to pageable memory; median size 1e+03 kB"
    assert result.gain_us == pytest.approx(300.0)


def _elementwise(op: str, dims: tuple[str, str]) -> Observed:
    step, graph_bytes = Steps(), 2.0 * 4 * 1e6
    for shape in dims:
        step.call(1.0, 100.0, op_name=op, family="elementwise", dtype="float32", input_dims=f"[[{shape}]]",
                  flops=1e6, bytes=graph_bytes)  # fmt: skip
    return step.observed(AnalyticPredictor())


def test_chain_is_detected_and_one_pass_is_left() -> None:
    """Two passes over memory of 100 us each; one of the same bytes is left, held to the measurements."""
    result = only(_elementwise("aten::relu", ("1000,1000", "1000,1000")), unfused_chains)
    assert "2 elementwise ops take 200 us of a rank's step (mean over ranks)" in result.evidence[0]
    assert "would become 1" in result.evidence[0]
    assert result.edit == "{fuse:{}}"
    assert result.gain_us == pytest.approx(100.0, rel=0.2)


def _lookups(dims: tuple[str, ...]) -> Observed:
    step = Steps()
    for shape in dims:
        step.call(20.0, 5.0, op_name="aten::mm", family="gemm", dtype="float32", input_dims=shape, flops=1e5, bytes=1e4)
    step.call(1.0, 1.0)
    step.wait()
    return step.observed(AnalyticPredictor())


def test_equal_independent_calls_are_detected() -> None:
    """None takes [32,8], what each makes."""
    result = only(_lookups(("[[32,16],[16,8]]",) * 4), repeated_models)
    assert result.edit == "{horizontal:{}}"
    assert result.evidence[0].startswith("4 calls become 1")
    assert result.gain_us is not None
    assert result.gain_us > 50.0  # three launches of 20 us


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (_two_ranks(100.0, 100.0), straggler),
        (_two_ranks(100.0, 104.0), straggler),  # 4 us of 114 us: below what is suspicious
        (_two_ranks(100.0), straggler),  # no one waits
        (_communication(own_stream=True), exposed_communication),
        (_two_ranks(1000.0, 1000.0), exposed_communication),  # 10 us of 1,010 us
        (_calls(5.0, 50.0), host_bound),
        (_two_ranks(100.0, 100.0), host_bound),  # ranks on CPUs have no host apart
        (_calls(5.0, 50.0), launch_bound),
        (_two_ranks(100.0, 100.0), launch_bound),
        (_products(60.0, odd_rows=72), misaligned_products),
        (_products(60.0, dtype="float32"), misaligned_products),  # no matrix units for it here
        (_products(20.0), misaligned_products),  # as fast as the aligned one: nothing to gain
        (_input(2.0), input_stall),
        (_input(8.0), input_stall),  # 6 us of 162 us
        (_copies(150.0), slow_copies),
        (_copies(400.0, "Memcpy DtoD (Device -> Device)"), slow_copies),
        (_elementwise("aten::relu", ("1000,1000", "100,10000")), unfused_chains),
        (_lookups(("[[32,16],[16,8]]", "[[32,16],[16,4]]")), repeated_models),
    ],
)
def test_a_step_without_what_a_rule_looks_for_has_no_finding(step: Observed, rule: Rule) -> None:
    assert find(step, (rule,)) == ()


def test_stalls_are_counted_and_gain_what_the_step_is_shorter_without_them() -> None:
    step = Steps()
    step.host(5000.0, op_name="cudaMalloc")
    step.work(10_000.0)
    step.work(100.0, op_name="late")
    observed = step.observed()
    assert find(observed, (stalls,)) == ()  # what stalls is not known
    result = only(replace(observed, stall_us=np.array([5000.0, 0.0, 2000.0]), without_stalls_us=10_100.0), stalls)
    assert result.cause == "2 stalls take 7.0 ms, summed over ranks"
    assert result.evidence == (
        "most stalled time: the gap before cudaMalloc 5,000 us (1), late 2,000 us (1)",
        "the longest takes 5,000 us at the gap before cudaMalloc, rank 0; 1 of 1 ranks have stalls",
    )
    assert (result.edit, result.gain_us) == ("stalls=remove", 5000.0)
    assert find(replace(observed, stall_us=np.array([5000.0, 0.0, 0.0]), without_stalls_us=15_000.0), (stalls,)) == ()


def _on_tables(*us: float) -> Observed:
    """Ranks that look up for so long, a MB per us, and meet in an exchange of 10 us."""
    step = Steps(len(us))
    for rank, own in enumerate(us):
        step.work(own, rank, family="embedding", bytes=own * 1e6, op_name="fbgemm::lookup")
    step.transfer(10.0, kind="all_to_all")
    return step.observed()


def test_where_no_tables_are_shown_an_even_division_bounds_the_gain() -> None:
    """40, 100 and 40: the mean is 60."""
    (result,) = find(_on_tables(40.0, 100.0, 40.0), (skewed_tables,))
    assert result.cause.startswith("rank 1 ")
    assert (result.gain_us, result.at_most) == (pytest.approx(40.0), True)
    assert result.evidence == (
        "rank 1 works 100 us for embedding tables, the others 40 us in the median; it comes 60 us later to collectives "
        "than the others, in sum",
        "it reads and writes 100 MB for them, the others 40 MB in the median",
    )


def test_equal_on_tables_or_one_rank_or_no_one_who_waits() -> None:
    assert find(_on_tables(50.0, 51.0), (skewed_tables,)) == ()
    assert find(_on_tables(50.0), (skewed_tables,)) == ()
    step = Steps(2)
    for rank, us in enumerate((100.0, 40.0)):
        step.work(us, rank, family="embedding", bytes=us * 1e6)
        step.work(100.0 - us, rank)
    step.transfer(10.0)
    assert find(step.observed(), (skewed_tables,)) == ()  # the other rank has more of other work


BANDWIDTH = roofs_of(DEVICE).bandwidth.sustained


def _branches(use: float | None = 0.25, *, tied: bool = True, joined: bool = False) -> Observed:
    """first 10; a1 100, a2 100; b1 80, b2 80; last 10. `joined`: b1 takes what a2 makes."""
    step = Steps()
    times = {"first": 10.0, "a1": 100.0, "a2": 100.0, "b1": 80.0, "b2": 80.0, "last": 10.0}
    size: dict[str, Any] = {"family": "elementwise", "dtype": "float32", "flops": 0.0}
    kernel = {}
    for name, us in times.items():
        moved: dict[str, Any] = {} if use is None else {"bytes": use * BANDWIDTH * us * 1e-6}
        kernel[name] = step.call(1.0, us, op_name=f"aten::{name}", **size, **moved)
    pairs = [("first", "a1"), ("a1", "a2"), ("first", "b1"), ("b1", "b2"), ("a2", "last"), ("b2", "last")]
    pairs += [("a2", "b1")] if joined else []
    if tied:
        step.edges += [(kernel[a], kernel[b], Relation.FEEDS) for a, b in pairs]
    return step.observed()


def test_branches_that_leave_slack_are_detected_with_what_they_gain() -> None:
    """10 + 200 + 160 + 10; side by side the second chain is hidden behind the first."""
    step = _branches()
    assert step.step_time_us == 380.0
    (result,) = find(step, (serialized_streams,))
    assert result.gain_us == 160.0
    assert result.at_most
    assert "2 of 6 kernels and copies need nothing of what their stream runs meanwhile" in result.evidence[0]
    assert "160 us less per rank" in result.evidence[0]
    assert "aten::b1 (80 us), aten::b2 (80 us) next to aten::a1 (100 us), aten::a2 (100 us)" in result.evidence[1]
    assert "25 % of the device" in result.evidence[2]
    assert any("share the device" in one for one in result.unknown)


def test_kernels_that_fill_the_device_and_what_needs_each_other_gain_nothing() -> None:
    assert find(_branches(use=0.6), (serialized_streams,)) == ()
    assert find(_branches(use=None), (serialized_streams,)) == ()  # nothing knows whether they leave space
    assert find(_branches(joined=True), (serialized_streams,)) == ()
    assert find(_branches(tied=False), (serialized_streams,)) == ()  # no tensor is followed


def test_a_host_that_is_slower_than_the_stream_gains_nothing() -> None:
    """The device waits for its launches: nothing is saved by a second stream."""
    step = Steps()
    size: dict[str, Any] = {"family": "elementwise", "dtype": "float32", "flops": 0.0, "bytes": 0.1 * BANDWIDTH * 50e-6}
    kernels = [step.call(200.0, 50.0, **size) for _ in range(4)]
    step.edges += [(kernels[0], kernels[1], Relation.FEEDS), (kernels[2], kernels[3], Relation.FEEDS)]
    assert find(step.observed(), (serialized_streams,)) == ()


def test_copies_over_the_host_link_leave_the_device_free_but_not_each_other() -> None:
    step = Steps()
    copy: dict[str, Any] = {"node_type": NodeType.MEMORY, "event_name": "Memcpy HtoD (Pinned -> Device)", "bytes": 1e5}
    first, second = (step.call(1.0, 50.0, **copy) for _ in range(2))
    gemm = step.call(1.0, 50.0, family="gemm", dtype="float32", flops=50e6, bytes=1.0)
    use = demands(step.observed(), DEVICE)
    np.testing.assert_allclose(use[[first, second]], [[0.0, 1.0], [0.0, 1.0]])
    assert use[gemm].tolist() == [1.0, 0.0]


@pytest.mark.mirror
def test_a_public_run_has_none(mirror: Path) -> None:
    """Kernels with an execution trace, so that tensors are followed: two streams would save 0.2 % of a rank's work."""
    folder = mirror / "NVIDIA+Megatron-LM/tp2"
    files = [*sorted(folder.glob("result/*/*.json.gz")), *sorted(folder.glob("pytorch_et_*.json.gz"))]
    graph = build_graph(read_run(files))
    one = graph.step(choose_step(graph, None).step).for_predictors()
    device = match_device(one.device_names[0])
    assert device is not None
    step = measured_step(one, NUM_UNROLLED, default_cluster(device))
    assert len(one.edges[one.edges["relation"] == Relation.FEEDS]) > 1000
    assert find(step, (serialized_streams,)) == ()
