"""Costs of the host that are no single op's: what many small ops cost each, and what the profiler adds to each event.

CPU: a small op's time is nearly all overhead. CUDA: the host's share of a call, as the queue is never full.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.profiler import ProfilerActivity, profile

from gnnperf.record.calibrate.point import HostPoint

NUM_ROUNDS = 5
OPS_PER_SEQUENCE = 4
SEQUENCES = 50  # 200 ops: below the 1,000 launches that fill a GPU's queue
PER_OP, PER_OP_PROFILED, PER_OP_SHAPES = "host_op_us", "profiler_event_us", "profiler_event_with_shapes_us"
SMALLEST_OP, CLOCK = "smallest_op_host_us", "host_clock_us"
COPY_BYTES = {"copy_to_device_64KiB_us": 2**16, "copy_to_device_256MiB_us": 2**28}
QUANTITIES: Mapping[str, str] = {
    PER_OP: "host time of a small op among many (add, mul, neg, copy; 16 elements), no profiler",
    PER_OP_PROFILED: "what the profiler (CPU activity, no shapes) adds to each event",
    PER_OP_SHAPES: "what the profiler adds to each event with record_shapes=True",
    SMALLEST_OP: "host time of in-place neg of one element, called as a tensor method",
    CLOCK: "one reading of the host's clock",
    **dict.fromkeys(COPY_BYTES, "CUDA: a copy from pinned memory, host time to its end"),
}


def host_costs_us(device: torch.device) -> dict[HostPoint, float]:
    """Medians over a few passes, in this process."""
    plain = _median_us(lambda: _pass_us(device))
    costs = {
        PER_OP: plain,
        PER_OP_PROFILED: _median_us(lambda: _profiled_us(device, False)) - plain,
        PER_OP_SHAPES: _median_us(lambda: _profiled_us(device, True)) - plain,
        SMALLEST_OP: _median_us(lambda: _smallest_us(device)),
        CLOCK: _median_us(_clock_us),
    }
    if device.type == "cuda":
        costs |= {name: _copy_us(device, num_bytes) for name, num_bytes in COPY_BYTES.items()}
    return {HostPoint(name): cost for name, cost in costs.items() if cost > 0}


def _median_us(measure: Callable[[], float]) -> float:
    measure()
    return statistics.median(measure() for _ in range(NUM_ROUNDS))


def _pass_us(device: torch.device) -> float:
    """Of one op; every op of the sequence is one event of the profiler."""
    a, b = torch.randn(16, device=device), torch.randn(16, device=device)
    _finish(device)
    begin = time.perf_counter_ns()
    for _ in range(SEQUENCES):
        a.add_(b)
        b.mul_(0.5)
        a.neg_()
        b.copy_(a)
    took = time.perf_counter_ns() - begin
    _finish(device)
    return took / 1e3 / SEQUENCES / OPS_PER_SEQUENCE


def _profiled_us(device: torch.device, record_shapes: bool) -> float:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=record_shapes):
        return _pass_us(device)


def _smallest_us(device: torch.device) -> float:
    one = torch.ones(1, device=device)
    _finish(device)
    begin = time.perf_counter_ns()
    for _ in range(SEQUENCES * OPS_PER_SEQUENCE):
        one.neg_()
    took = time.perf_counter_ns() - begin
    _finish(device)
    return took / 1e3 / SEQUENCES / OPS_PER_SEQUENCE


def _clock_us() -> float:
    begin = time.perf_counter_ns()
    for _ in range(1000):
        time.perf_counter_ns()
    return (time.perf_counter_ns() - begin) / 1e6


def _copy_us(device: torch.device, num_bytes: int) -> float:
    given = torch.randn(num_bytes // 4).pin_memory()
    got = torch.zeros_like(given, device=device)

    def copy() -> float:
        _finish(device)
        begin = time.perf_counter_ns()
        got.copy_(given, non_blocking=True)
        _finish(device)
        return (time.perf_counter_ns() - begin) / 1e3

    return _median_us(copy)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
