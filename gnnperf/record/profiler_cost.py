"""What the profiler adds to a step, per kind of event, measured on the machine at hand right after a recording.

The same small training step runs without and with the profiler, under the recorder's settings. Its weights do not fit
into a core's own cache, as in real programs: the profiler's code and tables are read anew at every event, and an event
costs more than in a loop of one op.
"""

import re
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.autograd.profiler import record_function
from torch.profiler import profile

from gnnperf.record.machine import cuda_device
from gnnperf.record.step_recorder import PROFILER_WARMUP_STEPS, step_profiler

ROUNDS, PLAIN_STEPS, PROFILED_STEPS, WARMUP_STEPS = 3, 10, 5, 3
LAYERS, WIDTH, BATCH = 10, 256, 4  # 2.6 MB of weights and as much of gradients; half a thousand op events per step
RANGES = 32  # annotations per step
RUNTIME_CALL = re.compile(r"(cu|cuda|hip)[A-Z]")  # cudaLaunchKernel, cuLaunchKernelEx, hipLaunchKernel
LAUNCHES = 64  # kernels per step: fewer than a launch queue holds

Sections = Mapping[str, Callable[[], None]]
Times = dict[str, list[float]]  # section -> [num_steps] us


def measure() -> dict[str, float]:
    """Microseconds per event, in less than 0.3 s on a CPU: part of a rank's card.

    Returns:
        op_us: an op or an autograd range; range_us: an annotation; call_us: a runtime call, 0 without a CUDA device in
        use; step_us: the mark between two steps; op_events: how many op events per step op_us was measured on.
    """
    sections: Sections = {"ops": _training_step(), "ranges": _annotations}
    device = cuda_device()
    if device is not None:
        sections = {**sections, "calls": _launches}
    with torch.cuda.device(device) if device is not None else nullcontext():
        _run(sections, WARMUP_STEPS)
        rounds = [_measure_once(sections) for _ in range(ROUNDS)]
    return {kind: round(statistics.median(result[kind] for result in rounds), 3) for kind in rounds[0]}


def _measure_once(sections: Sections) -> dict[str, float]:
    plain = _run(sections, PLAIN_STEPS // 2)
    profiler, profiled, marks_us = _run_profiled(sections)
    plain = {name: plain[name] + again for name, again in _run(sections, PLAIN_STEPS // 2).items()}
    added_us = {name: statistics.median(profiled[name]) - statistics.median(plain[name]) for name in sections}
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    assert results is not None, "a profile that was started and stopped has results"
    # Ops and autograd ranges; `activity_type` distinguishes them since torch 2.12 only.
    on_host = (e for e in results.events() if e.device_type() == DeviceType.CPU and not e.is_user_annotation())
    op_events = sum(not RUNTIME_CALL.match(event.name()) for event in on_host) / PROFILED_STEPS
    return {
        "op_us": max(added_us["ops"] / op_events, 0.0),
        "range_us": max(added_us["ranges"] / RANGES, 0.0),
        "call_us": max(added_us["calls"] / LAUNCHES, 0.0) if "calls" in sections else 0.0,
        "step_us": statistics.median(marks_us),
        "op_events": op_events,
    }


def _run(sections: Sections, num_steps: int) -> Times:
    """This thread's own time in every section of every step; a device finishes between them."""
    times: Times = {name: [] for name in sections}
    for _ in range(num_steps):
        for name, section in sections.items():
            begin_ns = time.thread_time_ns()
            section()
            times[name].append((time.thread_time_ns() - begin_ns) / 1e3)
        if "calls" in sections:
            torch.cuda.synchronize()
    return times


def _run_profiled(sections: Sections) -> tuple[profile, Times, list[float]]:
    """The profiler, the times of its steps, and [num_marks] us that marking a step took."""
    times: Times = {name: [] for name in sections}
    marks_us = []
    profiler = step_profiler(PROFILED_STEPS)
    profiler.start()
    for step in range(PROFILER_WARMUP_STEPS + PROFILED_STEPS):
        result = _run(sections, 1)
        begin_ns = time.thread_time_ns()
        profiler.step()
        if step >= PROFILER_WARMUP_STEPS:
            times = {name: times[name] + result[name] for name in sections}
            marks_us.append((time.thread_time_ns() - begin_ns) / 1e3)
    return profiler, times, marks_us[:-1]  # the last one also collects the events


def _training_step() -> Callable[[], None]:
    """Forward, backward and update of a small network; its numbers stay as they are and no random state moves."""
    layers = [nn.utils.skip_init(nn.Linear, WIDTH, WIDTH, device="cpu", dtype=torch.float32) for _ in range(LAYERS)]
    network = nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())])
    for parameter in network.parameters():
        nn.init.constant_(parameter, 1.0 / WIDTH)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    batch = torch.ones(BATCH, WIDTH, device="cpu", dtype=torch.float32)

    def step() -> None:
        with torch.enable_grad():
            optimizer.zero_grad()
            network(batch).sum().backward()
            optimizer.step()

    return step


def _annotations() -> None:
    for _ in range(RANGES):
        with record_function("gnnperf"):
            pass


def _launches() -> None:
    """Runtime calls without an op around them; their kernels take no time to speak of."""
    for _ in range(LAUNCHES):
        torch.cuda._sleep(1)
