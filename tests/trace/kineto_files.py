"""Hand-made Kineto files: a few events, times in microseconds.

thread 1   |ProfilerStep#5 0..100                                                        |
           |aten::linear 10..50                 |   |aten::relu 60..80 |
             |aten::addmm 15..45          |            |cudaLaunchKernel 65..70|
               |cudaLaunchKernel 20..25|
stream 7                   |gemm 30..60         |      |relu 75..85|
"""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.trace import read_run

Event = dict[str, Any]
LAUNCH = {"grid": [16, 2, 1], "block": [128, 1, 1], "registers per thread": 90, "shared memory": 4096,
          "est. achieved occupancy %": 38}  # fmt: skip


def host(name: str, start: float, duration: float, category: Any = "cpu_op", thread: Any = 1, **args: Any) -> Event:
    """An op, annotation or runtime call."""
    return {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": thread, "ts": start, "dur": duration,
            "args": args}  # fmt: skip


def call(name: str, start: float, duration: float, correlation: int, thread: Any = 1) -> Event:
    """A runtime call; like a file of 2023, its "External id" is the correlation id again."""
    ids = {"External id": correlation, "correlation": correlation}
    return host(name, start, duration, "cuda_runtime", thread, **ids)


def device(name: str, start: float, duration: float, correlation: int, category: Any = "kernel", **args: Any) -> Event:
    """Device work on stream 7 of device 0."""
    stated = {"External id": correlation, "device": 0, "stream": 7, "correlation": correlation, **args}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration, "args": stated}


def step_events() -> list[Event]:
    """The events drawn above."""
    return [
        host("ProfilerStep#5", 0, 100, "user_annotation", **{"External id": 1}),
        host("aten::linear", 10, 40, **{"External id": 2, "Input Dims": [[8, 4], [2, 4]], "Input type": ["float"] * 2}),
        host("aten::addmm", 15, 30, **{"External id": 3}),
        call("cudaLaunchKernel", 20, 5, 901),
        device("gemm", 30, 30, 901, **LAUNCH),
        host("aten::relu", 60, 20, **{"External id": 4}),
        call("cudaLaunchKernel", 65, 5, 902),
        device("relu", 75, 10, 902),
    ]  # fmt: skip


def document(events: list[Event], rank: int | None = 0, world_size: int = 1, **top: Any) -> dict[str, Any]:
    """A whole file's object."""
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size}}
    devices = [{"id": 0, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 34_000_000_000, "numSms": 80}]
    return {"schemaVersion": 1, "deviceProperties": devices, **info, "traceEvents": events, **top}


def events_of(folder: Path, events: list[Event], rank: int = 0, world_size: int = 1, **info: Any) -> pd.DataFrame:
    """What is read of a file in `folder` with these events; `info` goes into its distributedInfo."""
    content = document(events, rank, world_size)
    content["distributedInfo"] |= info
    return read_run(write(folder / "t.json", content)).tables[0].events


def refused(path: Path | list[Path], message: str) -> None:
    """Reading it ends in one line, with this message."""
    with pytest.raises(InputError, match=message) as caught:
        read_run(path)
    assert "\n" not in str(caught.value)


def five_steps() -> dict[str, Any]:
    """A file of five steps of 200 us on one V100: each launches one mm of 512 x 512 x 512 and waits for it."""
    shapes = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}
    events = []
    for number, at in ((10 + k, 1000.0 + 200.0 * k) for k in range(5)):
        events += [
            host(f"ProfilerStep#{number}", at, 199, "user_annotation"),
            host("aten::mm", at + 5, 30, **shapes, **{"External id": number}),
            host("cudaLaunchKernel", at + 15, 5, "cuda_runtime", correlation=number),
            device("volta_sgemm_128x64_nn", at + 30, 145, number),
            host("cudaDeviceSynchronize", at + 40, 140, "cuda_runtime", correlation=1000 + number),
        ]
    return document(events)


def write(path: Path, content: Any, *, packed: bool = False) -> Path:
    """Write JSON; return the path."""
    text = content if isinstance(content, (str, bytes)) else json.dumps(content, indent=1)
    data = text if isinstance(text, bytes) else text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


STEP_US = 1000


def marked_steps(path: Path, steps: int = 6, rank: int = 0) -> Path:
    """Steps 5, 6, ... of an op that launches a kernel, which begins in the next step."""
    events = []
    for i in range(steps):
        at = STEP_US * i
        events += [
            host(f"ProfilerStep#{5 + i}", at, STEP_US - 1, "user_annotation"),
            host("aten::mm", at + 10, 50),
            call("cudaLaunchKernel", at + 20, 5, 900 + i),
            device("gemm", at + STEP_US + 10, 30, 900 + i),
        ]
    return write(path, document(events, rank, 4), packed=path.suffix == ".gz")


def tar(path: Path, members: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    """A packed tar archive; its links lead to /etc/passwd."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return path


def zipped(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip archive."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return path


def write_ranks(folder: Path, world_size: int, ranks: list[int] | None = None) -> Path:
    """A folder of rank files of one run."""
    for rank in ranks if ranks is not None else range(world_size):
        write(folder / f"rank_{rank}.json", document(step_events(), rank, world_size))
    return folder
