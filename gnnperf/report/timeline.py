"""timeline.json.gz: trace-event JSON for Perfetto, predicted beside measured.

    critical path (predicted)   |T2|--- gemm ---|-- all_reduce --|T1|        one process, in the order of time
    rank 0   stream 0  predicted   |--- gemm ---|-- all_reduce --|           arrows follow the critical path
             stream 0  measured    |---- gemm -----|--- all_reduce ---|
             thread 0  predicted |T2|T4|T3|                      |T1|

Format: complete events (ph X) that never overlap on one track, metadata (M) for names and order, flows (s, f).
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from isal import igzip

from gnnperf.predict.critical_time import critical_chain
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.tracks import FIRST_RANK_PID, PREDICTED, tracks

MAX_TEXT = 500  # characters of shapes per slice
CRITICAL_PID = 0  # the ranks follow, from FIRST_RANK_PID

Event = dict[str, Any]


def timeline(answer: StepPrediction) -> dict[str, Any]:
    """The whole trace-event document."""
    slices, about = tracks(answer), _about(answer)
    chain = critical_chain(answer.prediction.graph, answer.schedule)
    events = [*_metadata(slices), *_work(slices, about), *_critical(answer, chain, about), *_flows(slices, chain)]
    return {
        "displayTimeUnit": "ns",
        "otherData": {"run": answer.prediction.graph.name, "mode": str(answer.mode), "hardware": answer.hardware},
        "traceEvents": _from_zero(events),
    }


def compressed(answer: StepPrediction) -> bytes:
    """The document as gzip, the same bytes for the same answer."""
    return igzip.compress(msgspec.json.encode(timeline(answer)), mtime=0)


def _from_zero(events: list[Event]) -> list[Event]:
    """The same events, all later by the same time if one would begin before 0, where readers drop it.

    In a steady state, what step k-1 launched late and what step k starts early overlap.
    """
    earliest = min((event["ts"] for event in events if "ts" in event), default=0.0)
    if earliest >= 0.0:
        return events
    return [{**event, "ts": round(event["ts"] - earliest, 3)} if "ts" in event else event for event in events]


def _metadata(slices: pd.DataFrame) -> Iterator[Event]:
    """Names and order of processes and tracks."""
    yield from _process(CRITICAL_PID, "critical path (predicted)")
    yield _meta("thread_name", CRITICAL_PID, 0, name="in the order of time")
    for pid in sorted(set(slices["pid"])):
        yield from _process(int(pid), f"rank {pid - FIRST_RANK_PID}")
    for pid, tid, name in slices[["pid", "tid", "track"]].drop_duplicates().itertuples(index=False):
        yield _meta("thread_name", pid, tid, name=name)
        yield _meta("thread_sort_index", pid, tid, sort_index=tid)


def _process(pid: int, name: str) -> Iterator[Event]:
    yield _meta("process_name", pid, 0, name=name)
    yield _meta("process_sort_index", pid, 0, sort_index=pid)


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": int(pid), "tid": int(tid), "args": args}


def _work(slices: pd.DataFrame, about: list[Event]) -> Iterator[Event]:
    """One complete event per slice, with what is known about its node."""
    columns = ["node_id", "name", "kind", "pid", "tid", "start_ns", "end_ns"]
    for node_id, name, kind, pid, tid, start_ns, end_ns in slices[columns].itertuples(index=False):
        yield _complete(name, kind, pid, tid, start_ns, end_ns, about[node_id])


def _complete(name: str, category: str, pid: int, tid: int, start_ns: int, end_ns: int, args: Event) -> Event:
    times = {"ts": int(start_ns) / 1000, "dur": int(end_ns - start_ns) / 1000}  # us, whole nanoseconds
    return {"ph": "X", "name": name, "cat": category, "pid": int(pid), "tid": int(tid), **times, "args": args}


def _about(answer: StepPrediction) -> list[Event]:
    """[num_nodes] arguments shown for a selected slice; unknown values are left out."""
    nodes, prediction = answer.prediction.graph.nodes, answer.prediction
    columns = {
        "op": nodes["op_name"].astype(object),
        "source": [str(s) for s in prediction.source],
        "predicted_latency_us": prediction.latency_us,
        "measured_latency_us": nodes["latency_us"],
        "waited_us": nodes["blocked_us"].where(nodes["blocked_us"] > 0),
        "event": nodes["event_name"].astype(object),
        "shapes": nodes["input_dims"].astype(object).str.slice(0, MAX_TEXT),
        "dtype": nodes["dtype"].astype(object),
        "message_bytes": nodes["message_bytes"],
        "critical_us": pd.Series(answer.critical_us).where(answer.schedule.on_critical_path),
        "node_id": nodes["node_id"],
    }
    about: list[Event] = [{} for _ in range(len(nodes))]
    for key, column in columns.items():
        values = pd.Series(column)
        for row, value, known in zip(about, values.tolist(), values.notna(), strict=True):
            if known:
                row[key] = value
    return about


def _critical(answer: StepPrediction, chain: np.ndarray, about: list[Event]) -> Iterator[Event]:
    """The critical path as one track of its own: each node for as long as it holds the step back."""
    nodes = answer.prediction.graph.nodes
    ranks, kinds = nodes["rank"].to_numpy(), nodes["node_type"].to_numpy()
    begin = np.append(answer.schedule.start_us[chain], answer.schedule.makespan_us)  # [num_on_path + 1]
    begin_ns = np.rint(begin * 1000.0).astype(np.int64)
    for node_id, start_ns, end_ns in zip(chain, begin_ns[:-1], begin_ns[1:], strict=True):
        if end_ns > start_ns:
            rank, kind = ranks[node_id], kinds[node_id]
            name = f"{about[node_id].get('op', kind)} ({kind}{f', rank {rank}' if rank >= 0 else ''})"
            yield _complete(name, "critical", CRITICAL_PID, 0, start_ns, end_ns, about[node_id])


def _flows(slices: pd.DataFrame, chain: np.ndarray) -> Iterator[Event]:
    """Arrows between consecutive predicted slices of the critical path."""
    drawn = slices[slices["kind"] == PREDICTED].drop_duplicates("node_id", keep="first").set_index("node_id")
    path = drawn.loc[chain[np.isin(chain, drawn.index)], ["pid", "tid", "start_ns"]].to_numpy()  # [num_drawn, 3]
    for number, (source, target) in enumerate(pairwise(path), start=1):
        yield _flow("s", number, source)
        yield {**_flow("f", number, target), "bp": "e"}  # bind to the slice around it, not to the next one


def _flow(phase: str, number: int, at: np.ndarray) -> Event:
    pid, tid, start_ns = (int(v) for v in at)
    where = {"pid": pid, "tid": tid, "ts": start_ns / 1000}
    return {"ph": phase, "name": "critical path", "cat": "critical", "id": number, **where}
