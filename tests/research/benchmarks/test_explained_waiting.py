"""Which share of waiting the edges of a graph explain."""

from __future__ import annotations

from traces import call, kernel, mark, op, run_of, trace

from research.benchmarks.replay import explained_waiting


def test_explained_waiting() -> None:
    """Blocked: a synchronization of 60 us that ends 3 us after its work, and a cudaMalloc of 40 us with an idle device.

    Gaps on the stream: 100 to 200, which ends 5 us after its launch.
    """
    result = explained_waiting(
        run_of(
            trace(
                mark(0, 0, 400), call("cudaLaunchKernel", 0, 5, corr=1), kernel("a", 6, 100, corr=1),
                call("cudaDeviceSynchronize", 43, 103), call("cudaMalloc", 120, 160),
                call("cudaLaunchKernel", 195, 198, corr=2), kernel("b", 200, 210, corr=2),
            )
        )
    )  # fmt: skip
    assert (result.blocked_us, result.blocked_explained_us, result.blocked_timing_us) == (100.0, 60.0, 0.0)
    assert result.blocked_external_us == 40.0
    assert (result.gap_us, result.gap_explained_us) == (100.0, 100.0)


def test_waiting_outside_whole_steps_does_not_count() -> None:
    result = explained_waiting(
        run_of(trace(mark(0, 0, 50), op("aten::a", 1, 2), call("cudaDeviceSynchronize", 60, 100), kernel("k", 70, 90)))
    )
    assert result.blocked_us == 0.0
