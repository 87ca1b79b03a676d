"""Hand-made exports of Nsight Systems: documented tables of schema 3, times in nanoseconds after the start.

thread 1   |NVTX step 5 0..100 us                                                                |
           |aten::linear 10..50                 |   |aten::relu 60..80 |
             |aten::addmm 15..45          |            |cudaLaunchKernel 65..70|
               |cudaLaunchKernel 20..25|
stream 7                   |gemm 30..60         |      |relu 75..85|
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PID = (5 << 24 | 100) << 24  # of the serialized id of process 100: hardware and machine above it
START_NS = 1_700_000_000_000_000_000
_AT = "start INTEGER NOT NULL, end INTEGER NOT NULL"
_LANE = (
    f"{_AT}, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL"
)
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER, "
    "clockRate INTEGER, smCount INTEGER, uuid TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_LANE}, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, "
    "shortName INTEGER NOT NULL, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, "
    "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, "
    "staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_LANE}, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, "
    "copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_LANE}, correlationId INTEGER, globalPid INTEGER, value INTEGER, "
    "bytes INTEGER NOT NULL, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_AT}, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, "
    "nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_LANE}, correlationId INTEGER, globalPid INTEGER, "
    "syncType INTEGER NOT NULL, eventId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_LANE}, correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT, "
    "globalTid INTEGER, textId INTEGER, domainId INTEGER",
}
_ZERO = {"contextId": 1, "eventClass": 0, "returnValue": 0, "vmId": 0, "graphId": 1, "value": 0, "shortName": 0}


class Export:
    """Rows by table; `write` makes the file with the tables that have rows, as nsys does."""

    def __init__(self, version: str = "3.28.1", gpu: str = "NVIDIA H100 80GB HBM3") -> None:
        self.rows: dict[str, list[Row]] = {}
        self.names: dict[str, int] = {}
        self.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value=version)
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=START_NS)
        self.add("TARGET_INFO_GPU", id=0, name=gpu, totalMemory=85_000_000_000, clockRate=1_980_000_000, smCount=132)
        self.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100)

    def add(self, table: str, **row: Any) -> None:
        """One row of a table."""
        self.rows.setdefault(table, []).append(row)

    def name(self, text: str) -> int:
        """The id of a text in StringIds."""
        if text not in self.names:
            self.names[text] = len(self.names) + 1
            self.add("StringIds", id=self.names[text], value=text)
        return self.names[text]

    def range(self, text: str, start_us: float, end_us: float | None, thread: int = 1, **row: Any) -> None:
        """An NVTX range; `eventType=59` is pushed and popped on its thread."""
        end = None if end_us is None else round(end_us * 1000)
        self.add("NVTX_EVENTS", **{"start": round(start_us * 1000), "end": end, "eventType": 59, "text": text,
                                   "globalTid": PID + thread, "domainId": 0, **row})  # fmt: skip

    def call(self, name: str, start_us: float, end_us: float, correlation: int, thread: int = 1) -> None:
        """A runtime call, with the version that CUPTI appends to its name."""
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=round(start_us * 1000), end=round(end_us * 1000),
                 globalTid=PID + thread, correlationId=correlation, nameId=self.name(name))  # fmt: skip

    def device(self, table: str, start_us: float, end_us: float, correlation: int, stream: int = 7, **row: Any) -> None:
        """Device work or a wait; `table` without CUPTI_ACTIVITY_KIND_."""
        at = {"start": round(start_us * 1000), "end": round(end_us * 1000), "deviceId": 0, "streamId": stream,
              "correlationId": correlation, "globalPid": PID}  # fmt: skip
        self.add("CUPTI_ACTIVITY_KIND_" + table, **at | row)

    def kernel(self, name: str, start_us: float, end_us: float, correlation: int, **row: Any) -> None:
        """A kernel of 16 x 2 blocks."""
        extents = {"gridX": 16, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
        launch = {"registersPerThread": 90, "staticSharedMemory": 1024, "dynamicSharedMemory": 3072}
        self.device("KERNEL", start_us, end_us, correlation,
                    **{"demangledName": self.name(name), **extents, **launch, **row})  # fmt: skip

    def write(self, path: Path, schema: dict[str, str] | None = None, *more: str) -> Path:
        """Write the file; `more` are statements that run last."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            for table, rows in self.rows.items():
                columns = (schema or SCHEMA)[table]
                connection.execute(f"CREATE TABLE {table} ({columns})")
                stated = [part.split()[0] for part in columns.split(", ")]
                needed = {c: _ZERO[c] for c in stated if c in _ZERO}
                for row in ({c: v for c, v in (needed | r).items() if c in stated} for r in rows):
                    marks = ", ".join("?" * len(row))
                    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
            for statement in more:
                connection.execute(statement)
            connection.commit()
        return path


def step(export: Export, at_us: float = 0, mark: str = "step 5", first: int = 901) -> Export:
    """The events drawn above, from a moment on."""
    export.range(mark, at_us, at_us + 100)
    export.range(f"aten::linear, op_id = {first + 1}, sizes = [[8, 4], [2, 4]]", at_us + 10, at_us + 50)
    export.range(
        f"aten::addmm, seq = {first}, op_id = {first + 2}, sizes = [[2], [8, 4], [4, 2]]", at_us + 15, at_us + 45
    )
    export.call("cudaLaunchKernel_v7000", at_us + 20, at_us + 25, first)
    export.kernel("gemm", at_us + 30, at_us + 60, first)
    export.range(f"aten::relu, seq = {first + 1}, op_id = {first + 3}, sizes = [[8, 2]]", at_us + 60, at_us + 80)
    export.call("cudaLaunchKernel_v7000", at_us + 65, at_us + 70, first + 1)
    export.kernel("relu", at_us + 75, at_us + 85, first + 1)
    return export
