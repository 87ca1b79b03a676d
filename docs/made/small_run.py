"""A run of few events, written as Kineto files and read back: what the pictures of the concept pages are drawn from.

One step of a rank: two products, an all-reduce of what they left, a product next to it, an update that waits for it.

    host        |mm|mm|all_reduce|mm| add_ |--- synchronize ---------|
    stream 7       |== mm ==|== mm ==|== mm ==|        |= add_ =|
    stream 20                        |== all_reduce ==|

The times are written down here, no one measured them.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.trace import read_run

DEVICE = "NVIDIA H100 80GB HBM3"
COMPUTE, COMMUNICATION = 7, 20  # streams; a second transfer has one of its own behind
STEP_US, NUM_STEPS, EDGE, BATCH = 960.0, 3, 4096, 4096
PRODUCT, UPDATE = [[BATCH, EDGE], [EDGE, EDGE]], [[EDGE, EDGE], [EDGE, EDGE]]


@dataclass(frozen=True)
class SmallRun:
    """What is written.

    Attributes:
        num_ranks: GPUs of one machine.
        transfers: all-reduces that are issued one behind the other, each on a stream of its own.
    """

    num_ranks: int = 2
    transfers: int = 1


@dataclass
class _Rank:
    """Events of one rank as they are written, times in microseconds."""

    rank: int
    num_ranks: int
    events: list[dict[str, Any]] = field(default_factory=list)

    def event(self, kind: str, name: str, start_us: float, end_us: float, thread: int, **args: object) -> None:
        self.events.append({"ph": "X", "cat": kind, "name": name, "ts": start_us, "dur": end_us - start_us,
                            "pid": 0, "tid": thread, "args": args})  # fmt: skip

    def op(self, name: str, start_us: float, end_us: float, number: int, shapes: list[Any], dtype: str) -> None:
        stated = {"Input Dims": shapes, "Input type": [dtype] * len(shapes)}
        self.event("cpu_op", name, start_us, end_us, 1, **{"External id": number, **stated})

    def call(self, name: str, start_us: float, end_us: float, correlation: int) -> None:
        self.event("cuda_runtime", name, start_us, end_us, 1, correlation=correlation)

    def kernel(self, name: str, when_us: tuple[float, float], stream: int, correlation: int, **args: object) -> None:
        where = {"device": 0, "stream": stream, "correlation": correlation}
        self.event("kernel", name, when_us[0], when_us[1], stream, **{**where, **args})

    def launched(
        self, op: str, start_us: float, kernel_us: tuple[float, float], number: int, shapes: list[Any]
    ) -> None:
        """An op that launches one kernel, which runs from and until `kernel_us`."""
        self.op(op, start_us, start_us + 30, number, shapes, "c10::BFloat16")
        self.call("cudaLaunchKernel", start_us + 8, start_us + 14, number)
        self.kernel(f"{op.rpartition('::')[2]}_kernel", kernel_us, COMPUTE, number)

    def all_reduce(self, start_us: float, kernel_us: tuple[float, float], number: int, group: int) -> None:
        """As torch issues it: its stream waits for what was launched before."""
        self.op("c10d::allreduce_", start_us, start_us + 40, number, [[[EDGE, EDGE]]], "TensorList")
        self.call("cudaEventRecord", start_us + 4, start_us + 6, number + 1)
        self.call("cudaStreamWaitEvent", start_us + 8, start_us + 10, number + 2)
        self.call("cudaLaunchKernelExC", start_us + 14, start_us + 22, number)
        self.call("cudaEventRecord", start_us + 26, start_us + 28, number + 3)
        self.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", kernel_us, COMMUNICATION + group, number, **{
            "Collective name": "allreduce", "In msg nelems": EDGE * EDGE, "Out msg nelems": EDGE * EDGE,
            "Group size": self.num_ranks, "dtype": "Float", "Process Group Name": str(group),
            "Process Group Ranks": json.dumps(list(range(self.num_ranks))),
        })  # fmt: skip


def _step(rank: _Rank, run: SmallRun, number: int) -> None:
    """One step; odd ranks take longer for their second product, and the others wait for them."""
    start, first = number * STEP_US, number * 100
    products_end = start + 440 + 60.0 * (rank.rank % 2)
    reduced = start + 800
    rank.event("user_annotation", f"ProfilerStep#{number}", start, start + STEP_US - 1, 1)
    rank.launched("aten::mm", start + 5, (start + 20, start + 230), first, PRODUCT)
    rank.launched("aten::mm", start + 40, (start + 231, products_end), first + 10, PRODUCT)
    for group in range(run.transfers):
        rank.all_reduce(start + 75 + 45 * group, (products_end + 2, reduced), first + 20 + 10 * group, group)
    then = start + 75 + 45 * run.transfers
    rank.launched("aten::mm", then, (products_end + 1, products_end + 211), first + 60, PRODUCT)
    rank.call("cudaStreamWaitEvent", then + 35, then + 37, first + 70)
    rank.launched("aten::add_", then + 40, (reduced + 1, reduced + 101), first + 80, UPDATE)
    rank.call("cudaDeviceSynchronize", then + 80, reduced + 110, first + 90)


def kineto(rank: int, run: SmallRun) -> dict[str, Any]:
    """The file of one rank."""
    written = _Rank(rank, run.num_ranks)
    for number in range(NUM_STEPS):
        _step(written, run, number)
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": DEVICE}],
        "distributedInfo": {"rank": rank, "world_size": run.num_ranks, "backend": "nccl"},
        "traceEvents": written.events,
    }


@cache
def small_graph(run: SmallRun = SmallRun()) -> ExecutionGraph:
    """The second step of the run: written, read, and made a graph like any trace."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(run.num_ranks):
            Path(folder, f"rank_{rank}.json").write_text(json.dumps(kineto(rank, run)))
        graph = build_graph(read_run(Path(folder)))
    return graph.step(graph.steps[1].step)
