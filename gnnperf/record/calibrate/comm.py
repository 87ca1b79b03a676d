"""Collectives and send/receive between ranks: the suite, and what every rank does to time it."""

import random
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from gnnperf.record.calibrate.point import Cache, CommPoint, Reading, write_readings
from gnnperf.record.launcher import put_transport_first, short_slice
from gnnperf.record.machine import nvidia_smi

MESSAGE_BYTES = tuple(2**power for power in (10, 13, 16, 18, 20, 22, 24, 26))
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SEND_RECV = "send"
LEAST_SAMPLES, MOST_SAMPLES = 3, 40
NUM_CONTENTS = 3

Transfer = Callable[[torch.Tensor, torch.Tensor], object]


def comm_points(
    num_ranks: int, link: str, pair_links: Sequence[tuple[int, int, str]] = (), sizes: Sequence[int] = MESSAGE_BYTES
) -> tuple[CommPoint, ...]:
    """Every collective at every size over groups of 2, 4, ... and all ranks; send/receive over every link."""
    powers = [2**p for p in range(1, num_ranks.bit_length()) if 2**p < num_ranks]
    groups = [tuple(range(n)) for n in (*powers, num_ranks) if n > 1]
    pairs = pair_links or [(0, 1, link)] if num_ranks > 1 else []
    return (
        *(CommPoint(op, size, group, link) for op in COLLECTIVES for group in groups for size in sizes),
        *(CommPoint(SEND_RECV, size, (a, b), name) for a, b, name in pairs for size in sizes),
    )


def measure_groups(points: Sequence[CommPoint], device: str, seed: int, seconds: float, out: Path) -> None:
    """On every rank: all points in the same shuffled order; rank 0 writes the readings.

    A reading is from the last rank's arrival to the last rank's end, on one host's clock.
    """
    points = random.Random(seed).sample(points, len(points))
    own = torch.device(device, dist.get_rank() % torch.cuda.device_count()) if device == "cuda" else torch.device("cpu")
    backend = "nccl" if device == "cuda" else "gloo"
    members = sorted({point.ranks for point in points})
    groups = {ranks: dist.new_group(list(ranks), backend=backend) for ranks in members}
    put_transport_first(short_slice)  # real-time threads of gloo stall sends and receives
    deadline = time.monotonic() + seconds
    written = []
    for place, point in enumerate(points):
        share_s = max(deadline - time.monotonic(), 0.0) / (len(points) - place)
        result = _measure(point, groups[point.ranks], own, share_s)
        written.append(Reading(point, Cache.WARM, True, statistics.median(result), len(result)))
    if dist.get_rank() == 0:
        write_readings(out, written)


def _measure(point: CommPoint, group: dist.ProcessGroup, device: torch.device, seconds: float) -> list[float]:
    """[samples] us on every rank of the world; those outside the group only keep in step."""
    member = dist.get_rank() in point.ranks
    run = _transfer(point, group) if member else None
    contents = [_buffers(point, device) for _ in range(NUM_CONTENTS)] if member else []
    _sample(run, contents, 0, device)  # connects, allocates
    begin = time.monotonic()
    _sample(run, contents, 1, device)
    affordable = seconds / max(time.monotonic() - begin, 1e-6)
    num_samples = torch.tensor(int(max(LEAST_SAMPLES, min(MOST_SAMPLES, affordable))), device=_default_device())
    dist.broadcast(num_samples, 0)
    return [_sample(run, contents, place, device) for place in range(int(num_samples))]


def _default_device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _sample(run: Transfer | None, contents: Sequence[tuple[torch.Tensor, torch.Tensor]], place: int,
            device: torch.device) -> float:  # fmt: skip
    """us, the same on every rank: last end - last arrival."""
    dist.barrier()
    arrival = end = 0
    if run is not None:
        given, got = contents[place % len(contents)]
        finish(device)
        arrival = time.perf_counter_ns()
        run(given, got)
        finish(device)
        end = time.perf_counter_ns()
    last = torch.tensor([arrival, end], dtype=torch.int64, device=_default_device())
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    return max(float(last[1] - last[0]) / 1e3, 1e-3)


def finish(device: torch.device) -> None:
    """Wait for the device's work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _buffers(point: CommPoint, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(input, output) of one rank, random float32."""
    n, size = point.num_bytes // 4, len(point.ranks)
    n -= n % size if point.op in ("reduce_scatter", "all_to_all") else 0
    outputs = {"all_gather": n * size, "reduce_scatter": n // size}
    return torch.randn(n, device=device), torch.zeros(outputs.get(point.op, n), device=device)


def _transfer(point: CommPoint, group: dist.ProcessGroup) -> Transfer:
    first, second = point.ranks[0], point.ranks[1]

    def exchange(given: torch.Tensor, got: torch.Tensor) -> object:
        return dist.send(given, second, group=group) if dist.get_rank() == first else dist.recv(got, first, group=group)

    return {
        "all_reduce": lambda given, got: dist.all_reduce(given, group=group),
        "all_gather": lambda given, got: dist.all_gather_single(got, given, group=group),
        "reduce_scatter": lambda given, got: dist.reduce_scatter_single(got, given, group=group),
        "all_to_all": lambda given, got: dist.all_to_all_single(got, given, group=group),
        "broadcast": lambda given, got: dist.broadcast(given, first, group=group),
        SEND_RECV: exchange,
    }[point.op]


# How GPUs are joined: the matrix of `nvidia-smi topo -m`, and who can reach whose memory.

TIMEOUT_S = 30.0
GPU = re.compile(r"GPU(\d+)")
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # nvidia-smi underlines its header
SELF = "X"
UNKNOWN = "unknown"

Pairs = dict[tuple[int, int], str]


def parse_topology(text: str) -> Pairs:
    """Pairs (i < j) of GPUs -> link: NV1.. (bonded NVLinks), PIX, PXB, PHB, NODE, SYS.

    Columns other than GPUs (adapters, CPU affinity) are left out.
    """
    lines = [STYLE.sub("", line).split() for line in text.splitlines()]
    header = next((words for words in lines if words and GPU.fullmatch(words[0]) and SELF not in words), [])
    columns = [int(result[1]) for word in header if (result := GPU.fullmatch(word))]
    pairs: Pairs = {}
    for words in lines:
        if not words or words is header or not (row := GPU.fullmatch(words[0])):
            continue
        for column, link in zip(columns, words[1:], strict=False):
            if link != SELF and int(row[1]) < column:
                pairs[int(row[1]), column] = link
    return pairs


def read_topology(num_gpus: int) -> Pairs:
    """Of this machine's GPUs; "unknown" for pairs that nvidia-smi does not name (as where it is absent)."""
    given = parse_topology(nvidia_smi("topo", "-m", timeout_s=TIMEOUT_S))
    return {(a, b): given.get((a, b), UNKNOWN) for a in range(num_gpus) for b in range(a + 1, num_gpus)}


def one_pair_per_link(pairs: Mapping[tuple[int, int], str]) -> list[tuple[int, int, str]]:
    """(i, j, link): the first pair of every kind of link."""
    first: dict[str, tuple[int, int]] = {}
    for pair, link in sorted(pairs.items()):
        first.setdefault(link, pair)
    return [(a, b, link) for link, (a, b) in first.items()]
