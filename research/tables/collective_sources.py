"""Readers of four published collective tables. What a "size" is differs from source to source: each states so here.

nccl-tests name as size the larger of one rank's input and output (NVIDIA/nccl-tests, doc/PERFORMANCE.md and the
GetCollByteCount functions): for all_gather that is the whole output, group_size times one rank's input.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import read_parquet, untrusted
from research.tables.collective_tables import COLUMNS, ELEMENT_BYTES, CollectiveTable, collective_table
from research.tables.columns import added_counts

US_PER_MS, NS_PER_US = 1e3, 1e3

AICONFIGURATOR = "ai-dynamo/aiconfigurator"
AICONFIGURATOR_FILES = "ai-dynamo+aiconfigurator/**/comm/nccl/*/nccl_perf.parquet"
AICONFIGURATOR_DTYPES = {"half": "float16", "int8": "int8"}
AICONFIGURATOR_KINDS = {"alltoall": "all_to_all"}
PCIE_DEVICES = ("l40s",)

ESTIMATE_TRAIN_TIME = "DebarghaG/estimate-train-time"
ESTIMATE_TRAIN_TIME_FILES = "DebarghaG+estimate-train-time/**/Perlmutter/nccl/*_fp16*.csv"
ESTIMATE_TRAIN_TIME_KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "p2p": "send_recv"}

VIDUR = "microsoft/vidur"
VIDUR_FILES = "microsoft+vidur/data/profiling/network/*/*.csv"

VTRAIN = "VIA-Research/vTrain"
VTRAIN_FILES = "VIA-Research+vTrain/trace/*/AR_GPU*_LUT"
VTRAIN_LINKS = {"a100": "nvlink", "v100": "nvlink_mesh"}


def read_collectives(mirror: Path) -> CollectiveTable:
    """Every collective table of a mirror of public measurements."""
    return joined([read_aiconfigurator(mirror), read_estimate_train_time(mirror), read_vidur(mirror),
                   read_vtrain(mirror)])  # fmt: skip


def joined(tables: Iterable[CollectiveTable]) -> CollectiveTable:
    """All rows of several tables, renumbered; counts of what was left out are added."""
    result = list(tables)
    empty = {name: np.empty(0) for name in COLUMNS}
    rows = [table.rows for table in result] or [collective_table(empty, 0).rows]
    return CollectiveTable(pd.concat(rows, ignore_index=True), added_counts(table.dropped for table in result))


def read_aiconfigurator(mirror: Path) -> CollectiveTable:
    """NCCL on one node, by nccl-tests: 40 warm-up calls, the mean of 60 or 100, no graph, ms.

    Its collector passes `message_size` x element size to nccl-tests as size: `message_size` counts elements, of the
    whole output for all_gather. The folder names the library; some files name another inside, which is not used.
    """
    return joined(_aiconfigurator_file(path) for path in sorted(mirror.glob(AICONFIGURATOR_FILES)))


def _aiconfigurator_file(path: Path) -> CollectiveTable:
    with untrusted.reading(path):
        result = read_parquet(path).to_pandas()
    device, version = path.parents[3].name, path.parent.name
    dtype = result["nccl_dtype"].map(AICONFIGURATOR_DTYPES)
    kind = result["op_name"].replace(AICONFIGURATOR_KINDS)
    size = result["message_size"] * dtype.map(ELEMENT_BYTES)  # [n] as nccl-tests count
    parts = np.where(kind == "all_gather", result["num_gpus"], 1)
    return collective_table(
        {"kind": kind, "message_bytes": size / parts, "group_size": result["num_gpus"], "nodes": 1, "device": device,
         "platform": f"{device} nccl {version}", "link": "pcie" if device in PCIE_DEVICES else "nvlink", "dtype": dtype,
         "latency_us": result["latency"] * US_PER_MS, "source": AICONFIGURATOR, "method": "nccl-tests, out of place"},
        len(result),
    )  # fmt: skip


def read_estimate_train_time(mirror: Path) -> CollectiveTable:
    """NCCL on Perlmutter, A100, up to 8 nodes, us.

    `shape` counts elements of float16 of one rank's input: its predictor asks these tables with batch x length x width
    (all-reduce, send) and with parameters / ranks (all-gather). Files without nodes and GPUs in their names join the
    others and are left out.
    """
    tables = []
    for path in sorted(mirror.glob(ESTIMATE_TRAIN_TIME_FILES)):
        result = pd.read_csv(path)
        name = path.stem.partition("80GB_")[2]
        if not name[-3:].replace("_", "").isdigit():
            tables.append(_left_out(ESTIMATE_TRAIN_TIME, "a file that joins others", len(result)))
            continue
        nodes = result["nodes"].astype(int)
        tables.append(collective_table(
            {"kind": ESTIMATE_TRAIN_TIME_KINDS[name.partition("_")[0]],
             "message_bytes": result["shape"] * ELEMENT_BYTES["float16"], "group_size": nodes * result["GPUsPerNode"],
             "nodes": nodes, "device": "A100-SXM4-80GB", "platform": "perlmutter",
             "link": np.where(nodes > 1, "network", "nvlink"), "dtype": "float16", "latency_us": result["dur(us)"],
             "source": ESTIMATE_TRAIN_TIME, "method": "not told"},
            len(result),
        ))  # fmt: skip
    return joined(tables)


def read_vidur(mirror: Path) -> CollectiveTable:
    """torch.distributed with NCCL, durations of kernels, ms; `size` is bytes of one rank's input.

    Each row is the median of three repetitions of the median over eleven calls on rank 0, in whole us. A kernel waits
    for its peers, so small messages tell when the peers came. In a pairwise machine only the two GPUs of a pair share
    NVLink. A file that is byte for byte another platform's is left out: it cannot be a measurement of both.
    """
    tables, seen = [], set()
    for path in sorted(mirror.glob(VIDUR_FILES)):
        result = pd.read_csv(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest in seen:
            tables.append(_left_out(VIDUR, "a file that is another platform's byte for byte", len(result)))
            continue
        seen.add(digest)
        kind, platform = str(result["collective"].iloc[0]), path.parent.name
        ranks, nodes = result["num_workers"], result["num_workers"] // result["devices_per_node"]
        inside = np.where(platform.endswith("pairwise_nvlink") & (ranks > 2), "pcie", "nvlink")
        tables.append(collective_table(
            {"kind": kind, "message_bytes": result["size"], "group_size": ranks, "nodes": nodes,
             "device": platform.partition("_")[0], "platform": platform, "link": np.where(nodes > 1, "network", inside),
             "dtype": "float16", "latency_us": result[f"time_stats.{kind}.median"] * US_PER_MS, "source": VIDUR,
             "method": "kernel, median of three"},
            len(result),
        ))  # fmt: skip
    return joined(tables)


def read_vtrain(mirror: Path) -> CollectiveTable:
    """nccl-tests all-reduce on one node, 1 to 1024 MiB in steps of 1 MiB, ns; out of place and in place."""
    return joined(table for path in sorted(mirror.glob(VTRAIN_FILES)) for table in _vtrain_file(path))


def _vtrain_file(path: Path) -> Iterator[CollectiveTable]:
    result = pd.read_csv(path)
    device, ranks = path.parent.name, int(path.name.removeprefix("AR_GPU").partition("_")[0])
    times = [name for name in result.columns if name.startswith("time(ns)")]  # pandas numbers the second one
    for time, place in zip(times, ("out of place", "in place"), strict=True):
        yield collective_table(
            {
                "kind": "all_reduce", "message_bytes": result["size(B)"], "group_size": ranks, "nodes": 1,
                "device": device, "platform": device, "link": VTRAIN_LINKS[device], "dtype": "float32",
                "latency_us": result[time] / NS_PER_US, "source": VTRAIN, "method": f"nccl-tests, {place}",
            },
            len(result),
        )  # fmt: skip


def _left_out(source: str, reason: str, count: int) -> CollectiveTable:
    return CollectiveTable(joined([]).rows, {f"{source}: {reason}": count})
