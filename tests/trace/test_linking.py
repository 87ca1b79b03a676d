"""Links: true ids, correlation, clocks that run apart, forward and backward."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.core import EventKind, Link
from gnnperf.trace import linking, read_run
from gnnperf.trace.assembly import Assembled, assemble
from gnnperf.trace.linking import enclosing_ops
from tests.trace import kineto_files as files
from tests.trace.kineto_files import Event, call, device, document, step_events, write


def _table(events: list[dict[str, Any]]) -> Assembled:
    return assemble(json.dumps(files.document(events)).encode(), "test")


def _row(table: Assembled, name: str) -> int:
    return int(np.flatnonzero([table.names[c] == name for c in table.columns["name"].codes])[0])


def _with_true_ids() -> list[dict[str, Any]]:
    named = {"gemm": 3, "relu": 4}
    return [{**e, "args": e["args"] | {"External id": named[e["name"]]}} if e["name"] in named else e
            for e in files.step_events()]  # fmt: skip


def test_true_ids_are_recognized_and_agree_with_correlation() -> None:
    table = _table(_with_true_ids())
    by_id, by_correlation = linking.link(table), linking.link(table, trust_ids=False)
    assert (by_id.method, by_correlation.method) == (Link.EXTERNAL_ID, Link.CORRELATION)
    assert by_id.op_event.tolist() == by_correlation.op_event.tolist()


def test_correlation_ids_that_name_random_ops_are_not_believed() -> None:
    events = files.step_events()
    table = _table([*({**e, "args": e["args"] | {"External id": 2}} if e["name"] == "relu" else e for e in events)])
    links = linking.link(table)
    assert links.method == Link.CORRELATION
    assert links.op_event[_row(table, "relu")] == _row(table, "aten::relu")


def test_work_launched_before_the_window_is_a_class_of_its_own() -> None:
    early = files.device("late_kernel", 5, 3, 880)
    orphan = files.device("lost", 90, 3, 999)
    table = _table([*files.step_events(), early, orphan])
    links = linking.link(table)
    assert linking.LINKS[links.link[_row(table, "late_kernel")]] == Link.BEFORE_WINDOW
    assert linking.LINKS[links.link[_row(table, "lost")]] == Link.NONE
    assert links.launch_event[_row(table, "lost")] == -1


def test_a_graph_launch_owns_all_its_kernels_and_no_op_is_no_link() -> None:
    events = [files.call("cudaGraphLaunch", 5, 3, 50), files.device("a", 10, 2, 50), files.device("b", 12, 2, 50)]
    table = _table(events)
    links = linking.link(table)
    assert links.launch_event.tolist() == [-1, 0, 0]
    assert [linking.LINKS[c] for c in links.link[1:]] == [Link.NONE, Link.NONE]


def test_of_two_calls_with_one_correlation_the_launch_counts() -> None:
    events = [files.call("cudaStreamIsCapturing", 5, 3, 50), files.call("cudaLaunchKernel", 9, 3, 50),
              files.device("a", 15, 2, 50)]  # fmt: skip
    assert linking.link(_table(events)).launch_event.tolist() == [-1, -1, 1]


def test_a_zero_length_launch_at_an_ops_end_belongs_to_it() -> None:
    events = [files.host("aten::a", 3, 2), files.host("aten::b", 5, 4), files.call("cudaLaunchKernel", 5, 2, 50)]
    table = _table(events)
    assert enclosing_ops(table)[_row(table, "cudaLaunchKernel")] == _row(table, "aten::b")


def test_calls_stamped_late_find_their_op() -> None:
    """Ops of 20 us every 25 us, each with a launch 2 us before its end; calls are stamped 6 us late."""
    events = []
    for k in range(60):
        events += [files.host(f"aten::op{k}", 25 * k, 20), files.call("cudaLaunchKernel", 25 * k + 13 + 6, 5, k + 1),
                   files.device(f"kernel{k}", 25 * k + 40, 3, k + 1)]  # fmt: skip
    table = _table(events)
    links = linking.link(table)
    kernels = np.flatnonzero(table.is_kind(EventKind.KERNEL))
    result = [table.names[table.columns["name"].codes[links.op_event[r]]] for r in kernels]
    assert result == [f"aten::op{k}" for k in range(60)]


def _numbered(name: str, start: float, duration: float, number: int, sequence: int, thread: int = 1) -> Event:
    """An op of the forward pass, or of the backward pass on thread 2."""
    ids = {"External id": number, "Sequence number": sequence, "Fwd thread id": int(thread == 2)}
    return files.host(name, start, duration, thread=thread, **ids)


FORWARD_AND_BACKWARD = [
    _numbered("aten::linear", 0, 20, 1, 5), _numbered("aten::addmm", 5, 10, 2, 5),
    _numbered("AddmmBackward0", 50, 10, 3, 5, thread=2), _numbered("MulBackward0", 70, 10, 4, 6, thread=2),
]  # fmt: skip


def test_backward_ops_find_the_last_forward_op_of_their_number_unless_a_flow_leads_to_another() -> None:
    flows = [
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 100, "tid": 1, "ts": 0},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 100, "tid": 2, "ts": 50, "bp": "e"},
    ]
    assert linking.forward_events(_table(FORWARD_AND_BACKWARD)).tolist() == [-1, -1, 1, -1]
    assert linking.forward_events(_table([*FORWARD_AND_BACKWARD[:3], *flows])).tolist() == [-1, -1, 0]


def _nearest_covering(table: Assembled, row: int) -> int:
    """Brute force: of the ops before a row on its thread, the last whose end is not before the row's middle."""
    start, duration = table.columns["start_ns"], table.columns["duration_ns"]
    middle = start[row] + duration[row] // 2
    ops = [r for r in range(row) if table.kind[r] == 0 and table.columns["thread"][r] == table.columns["thread"][row]]
    covering = [r for r in ops if start[r] + duration[r] >= middle]
    return covering[-1] if covering else -1


EVENT = st.tuples(
    st.integers(0, 60), st.integers(0, 40), st.integers(1, 2), st.booleans()
)  # start, duration, thread, op


@settings(max_examples=60)
@given(st.lists(EVENT, min_size=1, max_size=30))
def test_the_enclosing_op_is_the_brute_force_result(drawn: list[tuple[int, int, int, bool]]) -> None:
    events = []
    for number, (start, duration, thread, is_op) in enumerate(drawn, 1):
        category = "cpu_op" if is_op else "user_annotation"
        events.append(files.host("name", start, duration, category, thread, **{"External id": number}))
    table = _table(events)
    assert enclosing_ops(table).tolist() == [_nearest_covering(table, r) for r in range(len(table))]


def sync(name: str, start: float, correlation: int, **args: object) -> Event:
    """An event of category cuda_sync (enable_cuda_sync_events), on the row of its stream."""
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
