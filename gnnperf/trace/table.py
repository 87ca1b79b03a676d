"""TraceTable: one rank's normalized events, and what is known about the rank."""

from dataclasses import dataclass, field

import pandas as pd

EVENTS_FILE = "events.parquet"  # saved tables: all ranks of a run
REFERENCES = ("forward_event", "op_event", "launch_event")  # events: rows of the same table; -1 none
IMPORTED = "tables"  # the folder of these files in what `gnnperf import` writes
CARD = "run.json"  # the recorder's, next to traces or tables
CAPTURED = "captured"  # source format of a program that never ran: order is known, times are not


@dataclass(frozen=True)
class DeviceInfo:
    """One accelerator as the trace names it; None where the trace is silent."""

    name: str
    memory_bytes: int | None = None
    num_sms: int | None = None
    clock_hz: float | None = None


@dataclass(frozen=True)
class TraceMeta:
    """What is known about one rank's trace. Only these keys are ever copied out of a file."""

    rank: int
    rank_source: str  # "metadata", "file name" or "assumed"
    world_size: int | None
    source_format: str  # "kineto", "execution_trace+kineto", "nsight_systems" or CAPTURED
    source_file: str  # base name only
    source_sha256: str
    base_time_ns: int  # add to start_ns for absolute time
    devices: tuple[DeviceInfo, ...] = ()
    backend: str | None = None  # nccl, gloo, ...
    has_shapes: bool = False
    link_method: str = "none"  # how device work was tied to CPU ops in this file (Link value)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TraceTable:
    """One rank of one run."""

    meta: TraceMeta  # rank, world size, devices, provenance
    events: pd.DataFrame  # [num_events] table with schema.EVENT_COLUMNS, sorted by start_ns
    # [num_feeds] table (producer_event, consumer_event): tensor data dependencies between CPU ops, from an execution
    # trace; empty without one
    feeds: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(
            {"producer_event": pd.Series([], dtype="int64"), "consumer_event": pd.Series([], dtype="int64")}
        )
    )


@dataclass(frozen=True)
class RunTrace:
    """All traced ranks of one run, sorted by rank."""

    name: str  # the run's name (file or folder it came from, without path)
    tables: tuple[TraceTable, ...]  # one per traced rank
    card: dict[str, object] | None = None  # the recorder's `run.json` (workload, parallelism, links), if there is one
    warnings: tuple[str, ...] = ()  # what a user should know: missing ranks, skewed windows, assumed ranks

    @property
    def world_size(self) -> int:
        """Ranks of the run: as the traces say, else the number of traced ranks."""
        stated = [t.meta.world_size for t in self.tables if t.meta.world_size]
        return max([*stated, len(self.tables)])

    @property
    def is_captured(self) -> bool:
        """Whether its times say only what comes before what: the program was captured, not run."""
        return any(t.meta.source_format == CAPTURED for t in self.tables)
