"""The link between the ranks, measured before a run: a few all-reduces, a small one for latency, a large one for rate.

It takes some milliseconds on one host and half a second over 0.25 Gbit/s. The group's own backend does the work, so the
number says what the training's collectives will find.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gnnperf.record.device import cuda_device

ON_HOST_MEMORY = ("gloo", "mpi", "ucc")  # backends; all others work on the rank's CUDA device


@dataclass(frozen=True)
class Point:
    """One size: how many bytes every rank brings, and how often after one dropped round."""

    num_bytes: int
    rounds: int


POINTS = (Point(8, 15), Point(2**22, 3))


def probe_link() -> dict[str, object] | None:
    """Time all-reduces over all ranks; every rank must call it. None for one rank.

    Returns:
        `points`: for each size, `median_us` from this rank's call to its return. `bytes_per_s`: what each rank sends in
        a ring all-reduce of the large one, 2 (n - 1) / n of its bytes, over its median time.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    world_size = dist.get_world_size()
    points = [{"bytes": point.num_bytes, "median_us": round(_median_us(point), 1)} for point in POINTS]
    sent_bytes = 2 * (world_size - 1) / world_size * POINTS[-1].num_bytes
    return {"operation": "all_reduce", "ranks": world_size, "points": points,
            "bytes_per_s": round(sent_bytes / points[-1]["median_us"] * 1e6)}  # fmt: skip


def _median_us(point: Point) -> float:
    index = None if dist.get_backend() in ON_HOST_MEMORY else cuda_device()
    message = torch.zeros(point.num_bytes // 4, device="cpu" if index is None else f"cuda:{index}")
    samples = [_time_us(message) for _ in range(1 + point.rounds)]
    return statistics.median(samples[1:])


def _time_us(message: torch.Tensor) -> float:
    began_ns = time.perf_counter_ns()
    dist.all_reduce(message)
    if message.is_cuda:
        torch.cuda.synchronize(message.device)
    return (time.perf_counter_ns() - began_ns) / 1e3
