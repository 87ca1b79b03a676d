"""The smallest valid inputs of every reader, made by code, and how each is mutated."""

import gzip
import io
import json
import random
import sqlite3
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.hardware import conf_dir
from gnnperf.report.json_document import FORMAT, FORMAT_VERSION
from research.benchmarks.fuzz.mutations import json_text, mutated_bytes, mutated_value

Make = Callable[[random.Random], bytes]
EDITS: tuple[dict[str, Any], ...] = (
    {"batch": {"factor": 2}},
    {"straggler": {"rank": 0, "factor": 1.3}},
    {"stall": {"us": 2000}},
    {"sequence": {"factor": 2}},
    {"latency": {"op": "aten::addmm", "factor": 0.5}},
    {"dtype": {"of": "float32", "to": "bfloat16"}},
    {"overlap": {}},
    {"compress": {"ratio": 0.5}},
    {"device": {"to": "h100_sxm"}},
    {"link": {"bandwidth_factor": 2}},
    {"fuse": {}},
    {"cluster": {"nodes": 2}},
    {"repeat": {"op": "aten::relu", "times": 3}},
    {"world_size": {"ranks": 4}},
    {"block": {}},
    {"stream": {"op": "aten::relu"}},
    {"horizontal": {}},
    {"pause": {"us": 10, "rank": 0}},
)


def _host(name: str, start: float, duration: float, category: Any = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 1, "ts": start, "dur": duration, "args": args}


def _kernel(name: str, start: float, duration: float, correlation: int, **args: Any) -> dict[str, Any]:
    stated = {"External id": correlation, "device": 0, "stream": 7, "correlation": correlation, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration, "args": stated}


@cache
def kineto(rank: int = 0, world_size: int = 2) -> dict[str, Any]:
    """A trace of two steps: a product, an activation, an all-reduce, a copy, a synchronization."""
    events: list[dict[str, Any]] = []
    message: dict[str, Any] = {
        "Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "Group size": world_size,
        "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    for step, at in enumerate((1000.0, 1200.0)):
        ids = 10 * step
        dims = {
            "Input Dims": [[8, 4], [4, 8], []],
            "Input type": ["float", "float", "Scalar"],
            "Concrete Inputs": ["", "", "1"],
        }
        events += [
            _host(f"ProfilerStep#{step + 5}", at, 180, "user_annotation", **{"External id": ids + 1}),
            _host(
                "aten::addmm", at + 10, 30, **{"External id": ids + 2, "Ev Idx": ids, "Sequence number": ids, **dims}
            ),
            _host("cudaLaunchKernel", at + 15, 5, "cuda_runtime", correlation=ids + 901),
            _kernel("ampere_sgemm_128x64_nn", at + 25, 40, ids + 901, grid=[1, 2, 3], block=[128, 1, 1]),
            _host(
                "aten::relu", at + 50, 10, **{"External id": ids + 3, "Input Dims": [[8, 8]], "Input type": ["float"]}
            ),
            _host("cudaLaunchKernel", at + 52, 4, "cuda_runtime", correlation=ids + 902),
            _kernel("void relu_kernel<float>(int)", at + 70, 5, ids + 902),
            _host("record_param_comms", at + 80, 12, **{"External id": ids + 4, **message}),
            _host("cudaLaunchKernel", at + 84, 4, "cuda_runtime", correlation=ids + 903),
            _kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 90, 20, ids + 903, **message),
            _host("cudaDeviceSynchronize", at + 100, 30, "cuda_runtime", correlation=ids + 904),
        ]
    info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    devices = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "numSms": 108}]
    return {"schemaVersion": 1, "deviceProperties": devices, "distributedInfo": info, "traceEvents": events}


def kineto_bytes(rng: random.Random) -> bytes:
    """A mutated trace file; one in ten is packed."""
    text = json_text(mutated_value(kineto(), rng), rng)
    return gzip.compress(text, 1, mtime=0) if rng.random() < 0.1 else text


_LANE = {"start": 30_000, "end": 60_000, "deviceId": 0, "streamId": 7, "correlationId": 9, "globalPid": 100 << 24}
_HOST = {"start": 9_000, "end": 9_900, "globalTid": (100 << 24) + 1}
NSIGHT: dict[str, dict[str, Any]] = {
    "META_DATA_EXPORT": {"name": "EXPORT_SCHEMA_VERSION", "value": "3.28.1"},
    "StringIds": {"id": 1, "value": "cudaLaunchKernel_v7000"},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": 1_700_000_000_000_000_000},
    "TARGET_INFO_GPU": {"id": 0, "name": "NVIDIA T4", "totalMemory": 2**34, "clockRate": 10**9, "smCount": 40},
    "TARGET_INFO_CUDA_DEVICE": {"gpuId": 0, "cudaId": 0, "pid": 100},
    "CUPTI_ACTIVITY_KIND_KERNEL": _LANE
    | {"demangledName": 1, "registersPerThread": 90, "staticSharedMemory": 0, "dynamicSharedMemory": 64}
    | {extent + axis: 2 for extent in ("grid", "block") for axis in "XYZ"},
    "CUPTI_ACTIVITY_KIND_MEMCPY": _LANE | {"bytes": 64, "copyKind": 1, "srcKind": 0, "dstKind": 2},
    "CUPTI_ACTIVITY_KIND_MEMSET": _LANE | {"bytes": 64, "memKind": 2},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _LANE | {"syncType": 2, "eventId": 3},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": _LANE | {"eventId": 3, "correlationId": 8},
    "CUPTI_ACTIVITY_KIND_RUNTIME": _HOST | {"correlationId": 9, "nameId": 1},
    "NVTX_EVENTS": _HOST
    | {
        "eventType": 59,
        "domainId": 0,
        "textId": None,
        "text": "aten::mm, seq = 1, op_id = 2, sizes = [[8, 4], [4, 2]]",
    },
}
CELLS = (None, "", "x", b"\xff", -1, 0, 1.5, 2**31, 2**63 - 1, -(2**63))


def nsight_bytes(rng: random.Random) -> bytes:
    """An export of Nsight Systems of one row a table: bytes damaged, or other values, or fewer columns and tables."""
    if rng.random() < 0.5:
        return mutated_bytes(_database(NSIGHT), rng)
    tables = deepcopy(NSIGHT)
    for _ in range(rng.randint(1, 4)):
        row = tables[rng.choice(sorted(tables))]
        row[rng.choice(sorted(row))] = rng.choice(CELLS)
    if rng.random() < 0.2:
        del tables[rng.choice(sorted(tables))]
    return _database(tables)


def _database(tables: dict[str, dict[str, Any]]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, row in tables.items():
            columns = ", ".join(f'"{name}"' for name in row)
            connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", [*row.values()])
        connection.commit()
        return connection.serialize()


def execution_trace(rng: random.Random) -> bytes:
    """A mutated execution trace."""
    inputs = {"values": [[3, 2, 0, 8, 4, "cpu"]], "shapes": [[2, 4]], "types": ["Tensor(float)"]}
    nodes = [
        {
            "id": i,
            "name": name,
            "ctrl_deps": max(i - 1, 1),
            "inputs": inputs,
            "outputs": inputs,
            "attrs": [{"name": "rf_id", "type": "uint64", "value": i}, {"name": "seq_id", "type": "int64", "value": i}],
        }
        for i, name in enumerate(("[pytorch|profiler|execution_trace|thread]", "aten::addmm", "aten::relu"), 1)
    ]
    return json_text(
        mutated_value({"schema": "1.1.0-chakra.0.0.4", "pid": 1, "time": "x", "start_ts": 1, "nodes": nodes}, rng), rng
    )


@cache
def _archive(kind: str) -> bytes:
    text = json.dumps(kineto()).encode()
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("run/rank_0.json"), text)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("run/rank_0.json")
        member.size, member.pax_headers = len(text), {"comment": "x"}
        archive.addfile(member, io.BytesIO(text))
    return buffer.getvalue()


def zip_bytes(rng: random.Random) -> bytes:
    """A mutated zip archive."""
    return mutated_bytes(_archive("zip"), rng, _archive("tar"))


def tar_bytes(rng: random.Random) -> bytes:
    """A mutated tar archive, with the checksum of its first header made right in half of the cases."""
    data = bytearray(mutated_bytes(_archive("tar"), rng, _archive("zip")))
    if len(data) >= 512 and rng.random() < 0.5:
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
    return gzip.compress(bytes(data), 1, mtime=0) if rng.random() < 0.3 else bytes(data)


@cache
def saved_tables() -> bytes:
    """events.parquet of the trace."""
    from gnnperf.trace import read_run
    from gnnperf.trace.storage import write_run

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank_0.json"
        path.write_text(json.dumps(kineto()))
        write_run(read_run(path), Path(folder) / "tables")
        return (Path(folder) / "tables" / "events.parquet").read_bytes()


def table_bytes(rng: random.Random) -> bytes:
    """Saved tables: bytes damaged, or a valid file with other metadata, columns, or values."""
    if rng.random() < 0.5:
        return mutated_bytes(saved_tables(), rng)
    table = pq.read_table(io.BytesIO(saved_tables()))
    for name in rng.sample(table.column_names, min(2, table.num_columns)):
        index = table.column_names.index(name)
        kind = rng.randrange(3)
        if kind == 0:
            table = table.remove_column(index)
        elif kind == 1 and pa.types.is_integer(table[name].type):
            limit = np.iinfo(table[name].type.to_pandas_dtype())
            values = pa.array([rng.choice((limit.min, limit.max, 0, 1))] * len(table), table[name].type)
            table = table.set_column(index, name, values)
        elif table.num_columns:
            table = table.set_column(index, name, pa.array([rng.choice(("", "x", "²"))] * len(table)))
    metadata = dict(table.schema.metadata or {})
    for key in metadata:
        if key != b"ARROW:schema" and rng.random() < 0.7:
            metadata[key] = json_text(mutated_value(json.loads(metadata[key]), rng), rng)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return sink.getvalue()


CARD: dict[str, Any] = {
    "format": "gnnperf run", "version": 1, "workload": "gpt", "parameters": {"layers": 2}, "world_size": 2,
    "link": {"hosts": [[0], [1]], "rate_gbit_per_s": 1.0, "bucket_bytes": 70000}, "devices": ["cpu"],
    "hosts": [{"name": "x", "processor": "y", "cores": 2}], "peak_memory_bytes": [1, 2],
    "steps": {"profiled_us": [1.0]},
}  # fmt: skip
SPLITS: dict[str, Any] = {"run": {"train": ["a/1", "b/1"], "val": ["c/1"], "test": ["d/1"]}}
OPS: tuple[dict[str, Any], ...] = (
    {
        "op": "aten::addmm",
        "shapes": [[64], [32, 128], [128, 64]],
        "dtype": "float32",
        "latency_us": 12.0,
        "device": "a100_sxm_80gb",
    },
    {"op": "aten::gelu", "shapes": [[32, 4096]], "dtypes": ["bfloat16"], "direction": "backward"},
)
PREDICTION: dict[str, Any] = {
    "format": FORMAT, "format_version": FORMAT_VERSION, "step_time_us": 10.0, "step_time_kind": "period",
    "step_time_is_lower_bound": False, "run": "x", "mode": "hybrid", "hardware": "h200",
}  # fmt: skip


def of_value(value: Any) -> Make:
    """Mutated JSON of a value."""
    return lambda rng: json_text(mutated_value(value, rng), rng)


def op_rows(rng: random.Random) -> bytes:
    """Mutated JSON lines of ops."""
    return b"\n".join(json_text(mutated_value(row, rng), rng) for row in OPS)


def yaml_of(group: str, name: str) -> Make:
    """A mutated file of the catalog: as text, or as JSON of its mutated values, which is YAML too."""
    import yaml

    text = (conf_dir(group) / f"{name}.yaml").read_bytes()
    value = yaml.safe_load(text)
    return lambda rng: mutated_bytes(text, rng) if rng.random() < 0.4 else json_text(mutated_value(value, rng), rng)


@cache
def _checkpoint() -> bytes:
    """A checkpoint whose network is untrained."""
    import torch

    from gnnperf.analytic import default_constants
    from gnnperf.gnn import WORK, ModelConfig, TypedGNN
    from gnnperf.gnn.checkpoint import Checkpoint, save_checkpoint
    from gnnperf.gnn.data.floors import TypedFloors
    from gnnperf.gnn.data.normalizer import Normalizer
    from gnnperf.gnn.data.numbers import WORK_NAMES
    from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary
    from gnnperf.gnn.trust import Trust

    words = Vocabulary({t: dict.fromkeys(FIELDS, ("word",)) for t in WORK})
    model = ModelConfig(hidden_channels=8, num_layers=1)
    zeros, ones = ({t: fill(len(WORK_NAMES)) for t in WORK} for fill in (torch.zeros, torch.ones))
    floors, trust = TypedFloors({"host/T1": 2.0}, {"host": 3.0}, 1.0), Trust(("v100",), {"toy": ("aten::mm",)})
    parts = (
        Normalizer(zeros, ones, zeros, ones, {"low": torch.zeros(1, 4), "high": torch.ones(1, 4)}),
        TypedGNN(model, words).state_dict(),
        trust,
        {"seed": 0},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        save_checkpoint(path, Checkpoint(model, words, default_constants(), floors, *parts))
        return path.read_bytes()


def checkpoint_bytes(rng: random.Random) -> bytes:
    """The checkpoint with fields or bytes changed."""
    from gnnperf.gnn.data.archive import read_archive, write_archive

    if rng.random() < 0.5:
        return mutated_bytes(_checkpoint(), rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        path.write_bytes(_checkpoint())
        stored = read_archive(path, "")
        write_archive(path, mutated_value(stored.plain, rng), _mutated_tensors(stored.tensors, rng))
        return path.read_bytes()


def _mutated_tensors(tensors: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """One of them of another shape or with NaN, sometimes."""
    result, name = dict(tensors), rng.choice(list(tensors))
    if rng.random() < 0.5:
        result[name] = result[name].new_full((2,) if rng.random() < 0.5 else result[name].shape, float("nan"))
    return result
