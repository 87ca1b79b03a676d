"""Database of rocprofv3 (rocpd, schema version 3) -> the events that a Kineto file would hold.

Each table's name ends in the session's id. Times are ns since boot. The schema is documented in "Using rocpd output
format" of ROCprofiler-SDK and in its rocpd_tables.sql; `stack_id` of an event is the correlation of a call and of the
work that it launches.

table                     event
rocpd_kernel_dispatch     kernel with grid, block and shared memory
rocpd_memory_copy         copy
rocpd_region              HIP call, or roctx range: step mark, op of torch.autograd.profiler.emit_nvtx, or annotation
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from gnnperf.core import InputError
from gnnperf.trace.kineto import Args, Head
from gnnperf.trace.nsight import Database, as_raw, device_event, event_of, range_events

KERNELS = "rocpd_kernel_dispatch"
VERSION = "3"
EACH_RANK = "torchrun --no-python rocprofv3 --sys-trace -o rank_%rank% -- python train.py"
ENDS = {"HOST": "H", "DEVICE": "D"}


class Rocpd:
    """The tables of one session of one process, and what their rows refer to.

    `head` has the devices in the order of their numbers, and the time of the start.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        sessions = sorted(name.removeprefix(KERNELS) for name in database.tables if name.startswith(KERNELS))
        if len(sessions) != 1:
            raise InputError(f"holds {len(sessions)} sessions", where=database.where, allowed="one rank per file")
        self.session = sessions[0]
        version = dict(self._rows("rocpd_metadata", "tag value")).get("schema_version")
        if version != VERSION:
            raise InputError(f"has rocpd schema version {str(version)[:40]!r}", where=database.where, allowed=VERSION,
                             remedy="record again with rocprofv3 of ROCm 7")  # fmt: skip
        processes = {row[0] for row in self._rows(KERNELS, "pid")}
        if len(processes) != 1:
            raise InputError(f"holds kernels of {len(processes)} processes", where=database.where,
                             allowed="one rank per file", remedy=EACH_RANK)  # fmt: skip
        self.process = f"pid = {processes.pop()}"
        self.texts = {number: database.counted(text or "") for number, text in self._rows("rocpd_string", "id string")}
        self.calls = {row[0]: row[1:] for row in self._rows("rocpd_event", "id stack_id category_id")}
        starts = (row[0] for table in (KERNELS, "rocpd_region") for row in self._rows(table, "start") if row[0])
        self.base_ns = min(starts, default=0)
        gpus = [row for row in self._rows("rocpd_info_agent", "id type_index type", "product_name name")
                if row[2] == "GPU"]  # fmt: skip
        self.devices = {agent: index for agent, index, *_ in gpus}
        names = [{"name": product or name} for *_, product, name in sorted(gpus, key=lambda row: row[1] or 0)]
        self.head = Head(deviceProperties=Raw(msgspec.json.encode(names)), baseTimeNanoseconds=as_raw(self.base_ns))

    def _rows(self, table: str, columns: str, optional: str = "", of: str = "") -> Iterator[tuple[Any, ...]]:
        return self.database.rows(table.removesuffix(self.session) + self.session, columns, optional, of)

    def events(self) -> Iterator[Any]:
        """All of them, table by table."""
        yield from self._kernels()
        yield from self._copies()
        yield from self._regions()

    def _at(self, start: int, end: int, agent: int, stream: int, event: int, *size: int) -> list[int | None]:
        correlation, _ = self.calls.get(event, (None, None))
        return [start - self.base_ns, end - self.base_ns, self.devices.get(agent), stream, correlation, *size]

    def _kernels(self) -> Iterator[Any]:
        symbols = {row[0]: row[1] or row[2] for row in
                   self._rows("rocpd_info_kernel_symbol", "id", "display_name kernel_name")}  # fmt: skip
        extents = " ".join(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz")
        columns = f"start end agent_id stream_id event_id kernel_id group_segment_size {extents}"
        for *at, symbol, shared, gx, gy, gz, bx, by, bz in self._rows(KERNELS, columns, of=self.process):
            blocks = [-(-items // max(size, 1)) for items, size in ((gx, bx), (gy, by), (gz, bz))]  # of work items
            yield device_event("kernel", symbols.get(symbol) or "", self._at(*at), grid=as_raw(blocks),
                               block=as_raw([bx, by, bz]),
                               shared_bytes=Raw() if shared is None else as_raw(shared))  # fmt: skip

    def _copies(self) -> Iterator[Any]:
        columns = "start end dst_agent_id stream_id event_id size name_id src_agent_id"
        for start, end, target, stream, event, size, name, source in self._rows(
            "rocpd_memory_copy", columns, of=self.process
        ):
            agent = target if target in self.devices else source
            _, _, ends = self.texts.get(name, "").rpartition("COPY_")  # MEMORY_COPY_HOST_TO_DEVICE
            kind = "".join(ENDS.get(word, "to" if word == "TO" else "") for word in ends.split("_"))
            at = self._at(start, end, agent, stream, event, size)
            yield device_event("gpu_memcpy", f"Memcpy {kind or 'Unknown'}", at)

    def _regions(self) -> Iterator[Any]:
        threads = dict(self._rows("rocpd_info_thread", "id tid"))
        ranges = []
        for start, end, thread, name, event in self._rows(
            "rocpd_region", "start end tid name_id event_id", of=self.process
        ):
            correlation, category = self.calls.get(event, (None, None))
            kind, tid = self.texts.get(category, "").lower(), threads.get(thread, thread)
            text = self.texts.get(name, "")
            if "marker" in kind or "roctx" in kind:
                ranges.append((start - self.base_ns, end - self.base_ns, tid, text, True))
            elif "hip" in kind:
                args = Args(correlation=-1 if correlation is None else correlation)
                yield event_of("hip_runtime", text, start - self.base_ns, end - self.base_ns, tid, args)
        yield from range_events(ranges)
