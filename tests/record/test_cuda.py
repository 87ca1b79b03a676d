"""What the recorder asks of CUDA, answered by a stand-in: two devices, one of them in use."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from gnnperf.record import machine
from gnnperf.record.machine import barrier, cuda_device
from gnnperf.record.peak_memory import CudaMemory, HostMemory, peak_memory_of_this_rank
from gnnperf.record.step_clock import CudaClock, HostClock, clock_of_this_rank

NVIDIA_SMI = """#!/bin/sh
case "$*" in
*GPU-1111*) echo "1980, [N/A], 2619, 700.00" ;;
*) exit 9 ;;
esac
"""


@dataclass
class Cuda:
    """State of the stand-in."""

    initialized: bool = True
    current: int = 0
    held_bytes: list[int] = field(default_factory=lambda: [0, 0])
    now_us: float = 0.0
    streams: list[int] = field(default_factory=list)  # of which device's stream an event was recorded

    def event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        mark = SimpleNamespace(at_us=None)

        def record(stream: int) -> None:
            mark.at_us = self.now_us
            self.streams.append(stream)

        mark.record = record
        mark.elapsed_time = lambda later: (later.at_us - mark.at_us) / 1e3
        return mark


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    state = Cuda()
    gpu = SimpleNamespace(name="Toy GPU", major=9, minor=0, total_memory=80, multi_processor_count=132, uuid="1111")
    stubs = {
        "is_available": lambda: True, "is_initialized": lambda: state.initialized, "device_count": lambda: 2,
        "current_device": lambda: state.current, "memory_allocated": lambda index: state.held_bytes[index],
        "Event": state.event, "current_stream": lambda index: index, "synchronize": lambda index: None,
        "get_device_properties": lambda index: gpu, "reset_peak_memory_stats": lambda index: None,
        "max_memory_allocated": lambda index: 10 + index, "max_memory_reserved": lambda index: 20 + index,
    }  # fmt: skip
    for name, stub in stubs.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return state


def test_a_program_that_never_used_cuda_works_on_the_cpu(cuda: Cuda) -> None:
    cuda.initialized = False
    assert cuda_device() is None
    assert isinstance(clock_of_this_rank(), HostClock) and isinstance(peak_memory_of_this_rank(), HostMemory)
    assert machine.device()["kind"] == "cpu" and machine.device_clocks() == {}


@pytest.mark.parametrize(
    ("held_bytes", "current", "local_rank", "expected"),
    [
        ([0, 5], 0, None, 1),  # a model on its device, which was not made the current one
        ([5, 5], 1, None, 1),
        ([0, 0], 1, "0", 1),
        ([0, 0], 0, "1", 1),  # nothing is there yet: the launcher's
        ([0, 0], 0, "7", 0),  # it sees two devices only
        ([0, 0], 0, None, 0),
    ],
)
def test_the_device_is_the_one_that_holds_the_rank(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, held_bytes: list[int], current: int, local_rank: str | None,
    expected: int,
) -> None:  # fmt: skip
    cuda.held_bytes, cuda.current = held_bytes, current
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert cuda_device() == expected


@pytest.mark.parametrize(("backend", "given"), [("nccl", {"device_ids": [1]}), ("gloo", {})])
def test_nccl_is_reported_the_device(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, backend: str, given: dict[str, list[int]]
) -> None:
    cuda.current = 1
    result: list[dict[str, list[int]]] = []
    monkeypatch.setattr(dist, "get_backend", lambda: backend)
    monkeypatch.setattr(dist, "barrier", lambda **settings: result.append(settings))
    barrier()
    assert result == [given]


def test_every_step_that_ended_is_timed_on_the_ranks_own_device(cuda: Cuda) -> None:
    cuda.held_bytes = [0, 5]
    clock = clock_of_this_rank()
    assert isinstance(clock, CudaClock)
    for duration_us in (100.0, 250.0):
        clock.begin()
        cuda.now_us += duration_us
        clock.end()
    clock.begin()  # never ends
    assert clock.durations_us() == pytest.approx([100.0, 250.0])
    assert set(cuda.streams) == {1}


def test_the_memory_is_the_devices_own_count(cuda: Cuda) -> None:
    cuda.held_bytes = [0, 5]
    memory = peak_memory_of_this_rank()
    assert isinstance(memory, CudaMemory)
    memory.start()
    assert memory.facts() == {"method": "max_memory_allocated", "peak_bytes": 11, "reserved_bytes": 21}


def test_a_gpu_and_its_clocks_are_described(cuda: Cuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.device() == {"kind": "gpu", "name": "Toy GPU", "index": 0, "capability": "9.0", "memory_bytes": 80,
                                "num_sms": 132, "l2_bytes": None}  # fmt: skip
    assert machine.device_clocks()["clocks"] == {
        "clock_mhz": 1980, "max_clock_mhz": None, "memory_clock_mhz": 2619, "power_limit_w": 700}  # fmt: skip


def test_clocks_are_null_where_nothing_reports_them(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    clocks = machine.device_clocks()["clocks"]
    assert isinstance(clocks, dict) and set(clocks.values()) == {None}
