"""No leakage: an order-preserving warp of all times changes labels only.

measured  |--A--|-----B-----|-C-|           equal times stay equal, earlier stays earlier,
warped    |-A-|--B--|-------C-------|       every distance changes
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import Event, all_reduce, annotation, call, copy, kernel, mark, op, run_of, trace

from gnnperf.core import LABEL_COLUMNS, Evidence
from gnnperf.graph.build import correct_clocks, graph_of_corrected
from gnnperf.trace import RunTrace, TraceTable, read_run
from tests.graph.test_direct import message


def warped(run: RunTrace, seed: int) -> RunTrace:
    """All ranks through one strictly increasing map of ns, piecewise linear between the times that occur.

    Each distance between neighboring times is multiplied by a random factor of 1/50 to 50, at least 1 ns.
    """
    draw = np.random.default_rng(seed)
    moments = np.unique(np.concatenate([np.r_[_start(t), _end(t)] for t in run.tables]))
    factor = np.exp(draw.uniform(-np.log(50.0), np.log(50.0), len(moments) - 1))
    steps = np.maximum(np.rint(np.diff(moments) * factor).astype(np.int64), 1)
    image = np.r_[0, np.cumsum(steps)] + int(draw.integers(0, 10**9))  # [num_moments]
    return replace(run, tables=tuple(_through(t, moments, image) for t in run.tables))


def _start(table: TraceTable) -> np.ndarray:
    return table.events["start_ns"].to_numpy() + table.meta.base_time_ns


def _end(table: TraceTable) -> np.ndarray:
    return _start(table) + table.events["duration_ns"].to_numpy()


def _through(table: TraceTable, moments: np.ndarray, image: np.ndarray) -> TraceTable:
    start, end = (image[np.searchsorted(moments, times)] for times in (_start(table), _end(table)))
    events = table.events.assign(start_ns=start - image[0], duration_ns=end - start)
    return replace(table, events=events, meta=replace(table.meta, base_time_ns=int(image[0])))


def assert_same_values(a: pd.DataFrame, b: pd.DataFrame) -> None:
    """Whatever the categories are called and in which order; pandas compares those one by one, in Python."""
    one, other = (table.astype(dict.fromkeys(table.select_dtypes("category"), object)) for table in (a, b))
    assert list(a.dtypes == "category") == list(b.dtypes == "category")
    pd.testing.assert_frame_equal(one, other)


def assert_only_labels_changed(run: RunTrace, seed: int) -> None:
    corrected = correct_clocks(run)
    measured = graph_of_corrected(corrected)
    other = graph_of_corrected(warped(corrected, seed))
    assert not measured.nodes["latency_us"].equals(other.nodes["latency_us"]), "the warp must change something"
    a, b = measured.for_predictors(), other.for_predictors()
    labels = list(LABEL_COLUMNS)
    assert_same_values(a.nodes.drop(columns=labels), b.nodes.drop(columns=labels))
    assert_same_values(a.edges.drop(columns="lag_us"), b.edges.drop(columns="lag_us"))
    assert [(s.step, s.name) for s in a.steps] == [(s.step, s.name) for s in b.steps]
    assert (a.ranks, a.world_size, a.device_names) == (b.ranks, b.world_size, b.device_names)


def busy_step(number: int, begin: float, slow: float, rank: int) -> list[Event]:
    """Everything at once: two streams, an event wait, a pageable copy, a backward thread, a graph, a collective, waits.

    `slow` scales what the device does, so that causes bind in one step and not in another.
    """
    corr, at = 100 * (number + 1), begin
    return [
        mark(number, at, at + 400), annotation("## forward ##", at + 1, at + 90),
        op("aten::linear", at + 5, at + 30, input_dims="[[8,4],[4,4],[4]]", input_types='["float","float","float"]'),
        op("aten::addmm", at + 7, at + 28), call("cudaLaunchKernel", at + 10, at + 13, corr=corr),
        kernel("gemm", at + 14, at + 14 + 20 * slow, corr=corr),
        call("cudaEventRecord", at + 31, at + 32), call("cudaStreamWaitEvent", at + 33, at + 34),
        call("cudaLaunchKernel", at + 35, at + 37, corr=corr + 1),
        kernel("side", at + 38 + 15 * slow, at + 50 + 15 * slow, corr=corr + 1, stream=8),
        op("aten::copy_", at + 40, at + 85), call("cudaMemcpyAsync", at + 42, at + 84, corr=corr + 2),
        copy("Memcpy HtoD (Pageable -> Device)", at + 60 + 10 * slow, at + 64 + 10 * slow, corr=corr + 2, bytes=64.0),
        op("autograd::engine::evaluate_function: AddmmBackward0", at + 100, at + 140, thread=5),
        op("AddmmBackward0", at + 102, at + 138, thread=5, forward="aten::linear"),
        op("aten::mm", at + 104, at + 136, thread=5),
        call("cudaLaunchKernel", at + 110, at + 112, corr=corr + 3, thread=5),
        kernel("dgrad", at + 115 + 10 * slow, at + 120 + 20 * slow, corr=corr + 3),
        op("c10d::allreduce_", at + 150, at + 170), call("cudaLaunchKernelExC", at + 155, at + 160, corr=corr + 4),
        all_reduce(at + 165 + 5 * rank * slow, at + 200 + 5 * slow, corr=corr + 4),
        call("cudaGraphLaunch", at + 180, at + 190, corr=corr + 5),
        kernel("g1", at + 201 + 5 * slow, at + 210 + 5 * slow, corr=corr + 5),
        kernel("g2", at + 211 + 5 * slow, at + 220 + 5 * slow, corr=corr + 5),
        call("cudaLaunchKernel", at + 230, at + 290, corr=corr + 6),  # long, for no reason in the trace
        kernel("tail", at + 291, at + 300, corr=corr + 6),
        call("cudaStreamSynchronize", at + 295, at + 305), call("cudaDeviceSynchronize", at + 310, at + 330),
        op("aten::item", at + 340, at + 340), annotation("DistributedDataParallel.forward", at + 341, at + 390),
        call("cudaEventElapsedTime", at + 350, at + 351),
        call("cudaEventElapsedTime", at + 352 + slow, at + 355 + slow),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_made_up_run_of_two_ranks_and_three_steps(seed: int) -> None:
    tables = [
        trace(*(e for n in range(3) for e in busy_step(n, 400.0 * n + 3 * rank, (0.5, 1.0, 2.0)[(n + rank) % 3], rank)),
              kernel("early", -30, -5, corr=9), rank=rank, world_size=2, base_us=17.0 * rank)
        for rank in (0, 1)
    ]  # fmt: skip
    assert_only_labels_changed(run_of(*tables), seed)


@pytest.mark.parametrize("seed", range(3))
def test_one_rank_of_several_and_no_marks(seed: int) -> None:
    events = [e for e in busy_step(0, 0, 1.0, 0) if not e.name.startswith("ProfilerStep")]
    assert_only_labels_changed(run_of(trace(*events, world_size=8)), seed)


def gloo_step(number: int, at: float) -> list[Event]:
    """An all-to-all waited for at once, and the all-reduce of a bucket waited for when backward ends."""
    bucket = {"collective": "all_reduce", "group_size": 2}
    return [
        mark(number, at, at + 300), op("aten::mm", at + 5, at + 40),
        op("c10d::alltoall_base_", at + 50, at + 60, collective="all_to_all"),
        annotation("gloo:all_to_all", at + 55, at + 90 + number, thread=9, collective="all_to_all", group_size=2),
        op("aten::add", at + 95, at + 100),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at + 110, at + 130),
        op("c10d::allreduce_", at + 115, at + 125, **bucket),
        annotation("gloo:all_reduce", at + 120, at + 180 - 5 * number, thread=10, input_dims="[[64]]", **bucket),
        op("aten::as_strided", at + 185, at + 190, input_dims="[[64],[],[]]"), op("aten::add_", at + 200, at + 220),
    ]  # fmt: skip


def stage(rank: int, number: int, at: float) -> list[Event]:
    """A stage of a pipeline: what one sends the other waits for; one send is waited for at the end of the step."""
    slow = 10.0 * ((number + rank) % 3)
    if rank == 0:
        return [
            mark(number, at, at + 300), op("aten::mm", at + 5, at + 40 + slow),
            *message("send", at + 72, at + 76, at + 280 + slow / 10, "[0>1]"), op("aten::add", at + 80, at + 90),
            *message("recv", at + 92, at + 100, at + 180 + slow, "[1>0]"), op("aten::mm", at + 215, at + 270),
            op("aten::add_", at + 285, at + 290),
        ]  # fmt: skip
    return [
        mark(number, at, at + 300), *message("recv", at + 10, at + 20, at + 78 + slow, "[0>1]"),
        op("aten::mm", at + 105, at + 150), *message("send", at + 152, at + 160, at + 165, "[1>0]"),
        op("aten::add_", at + 175, at + 200),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step_of", [lambda rank, n: gloo_step(n, 300.0 * n + 7 * rank),
                                     lambda rank, n: stage(rank, n, 300.0 * n)], ids=["alike", "pipeline"])  # fmt: skip
def test_runs_on_host_threads(step_of: Callable[[int, int], list[Event]], seed: int) -> None:
    steps = [[e for n in range(3) for e in step_of(rank, n)] for rank in (0, 1)]
    tables = [trace(*events, rank=rank, world_size=2, backend="gloo") for rank, events in enumerate(steps)]
    assert_only_labels_changed(run_of(*tables), seed)


CALLS = ("cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaEventElapsedTime")
KERNELS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(7, 8)), min_size=1, max_size=10)


@settings(max_examples=8)
@given(KERNELS, st.integers(0, 99))
def test_any_timing_of_kernels_against_their_host(kernels: list[tuple[int, int, int]], seed: int) -> None:
    """Kernels of drawn delay, duration and stream; event waits, records, synchronizations and timers between."""
    events: list[Event] = [mark(0, 0, 500)]
    for i, (delay, duration, stream) in enumerate(kernels):
        at = 10.0 + 40 * i
        events += [
            op("aten::mm", at, at + 12), call("cudaLaunchKernel", at + 2, at + 5, corr=i + 1),
            kernel(f"k{i % 3}", at + 3 + delay, at + 3 + delay + duration, corr=i + 1, stream=stream),
            call(CALLS[i % len(CALLS)], at + 20, at + 20 + delay),
        ]  # fmt: skip
    assert_only_labels_changed(run_of(trace(*events)), seed)


def test_the_test_can_fail() -> None:
    """An edge from time distance is in the recorded graph, is gone after a warp, and is not what predictors get."""
    events = [
        call("cudaLaunchKernel", 0, 5, corr=1), kernel("A", 6, 95, corr=1),
        call("cudaLaunchKernelExC", 40, 100, corr=2), kernel("B", 101, 120, corr=2),
    ]  # fmt: skip
    run = correct_clocks(run_of(trace(*events)))
    runs = (run, *(warped(run, seed) for seed in range(5)))
    timing = [int((graph_of_corrected(r).edges["evidence"] == Evidence.TIMING).sum()) for r in runs]
    assert timing[0] == 1
    assert min(timing) == 0


GOLDEN = "pytorch+torchrec/examples/golden_training"
HTA = "facebookresearch+HolisticTraceAnalysis/tests/data"


@pytest.mark.mirror
@pytest.mark.parametrize("folder", [f"{GOLDEN}/log/resnet18", f"{HTA}/ns_resolution_trace"])
def test_real_runs(folder: str, mirror: Path) -> None:
    files = sorted(p for p in (mirror / folder).iterdir() if p.is_file())
    assert_only_labels_changed(read_run(files if len(files) > 1 else files[0]), seed=1)
