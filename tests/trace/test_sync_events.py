"""cuda_sync events, as Kineto writes them with enable_cuda_sync_events."""

from __future__ import annotations

from pathlib import Path

from gnnperf.core.schema import EventKind
from gnnperf.trace import read_run
from tests.trace.kineto_files import Event, call, device, document, step_events, write


def sync(name: str, start: float, correlation: int, **args: object) -> Event:
    """An event of category cuda_sync, on the row of its stream."""
    return device(name, start, 1, correlation, "cuda_sync", **{"cuda_sync_kind": name, **args})


def test_waits_name_streams_and_records(tmp_path: Path) -> None:
    """A stream wait holds back stream 20 until what stream 7 did before call 911; a stream sync names its stream only.

    An event sync is the host's wait: its stream is "invalid", -1.
    """
    events = [
        *step_events(),
        call("cudaEventRecord", 82, 1, 911),
        call("cudaStreamWaitEvent", 84, 1, 912),
        sync("Stream Wait Event", 84, 912, stream=20, wait_on_stream=7, wait_on_cuda_event_record_corr_id=911,
             wait_on_cuda_event_id=3),
        call("cudaEventSynchronize", 86, 1, 913),
        sync("Event Sync", 86, 913, stream=-1, wait_on_stream=7, wait_on_cuda_event_record_corr_id=911,
             wait_on_cuda_event_id=3),
        call("cudaStreamSynchronize", 88, 1, 914),
        sync("Stream Sync", 88, 914, stream=7),
    ]  # fmt: skip
    table = read_run(write(tmp_path / "rank_0.json", document(events))).tables[0].events
    result = table[table["kind"] == EventKind.SYNC].set_index("name")
    columns = ["stream", "waiting_stream", "wait_event", "correlation"]
    assert result.loc["Stream Wait Event", columns].tolist() == [7, 20, 911, 912]
    assert result.loc["Event Sync", columns].tolist() == [7, -1, 911, 913]
    assert result.loc["Stream Sync", columns].tolist() == [7, -1, -1, 914]
    assert (table.loc[table["kind"] != EventKind.SYNC, ["waiting_stream", "wait_event"]] == -1).all(axis=None)
