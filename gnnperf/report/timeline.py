"""timeline.json.gz: trace-event JSON for Perfetto, predicted next to measured.

    critical path (predicted)   |T2|--- gemm ---|-- all_reduce --|T1|        one process, in the order of time
    rank 0   stream 0  predicted   |--- gemm ---|-- all_reduce --|           arrows follow the critical path
             stream 0  measured    |---- gemm -----|--- all_reduce ---|
             thread 0  predicted |T2|T4|T3|                      |T1|

Format: complete events (ph X) that never overlap on one track, metadata (M) for names and order, flows (s, f).
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
Events are made and written a few thousand at a time: only the table of slices is as long as the trace.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from isal import igzip

from gnnperf.core import Source
from gnnperf.predict import StepPrediction, critical_chain
from gnnperf.report.summary import measured_slices, predicted_slices

# Slices on tracks: whole nanoseconds, and no overlap on a track, as the trace-event format asks.

PREDICTED, MEASURED = "predicted", "measured"
FIRST_RANK_PID = 1  # process number of rank 0


def tracks(answer: StepPrediction) -> pd.DataFrame:
    """Slices of both kinds with whole nanoseconds, process (pid), track (tid) and the track's name."""
    predicted = predicted_slices(answer).assign(kind=PREDICTED)
    slices = pd.concat([predicted, measured_slices(answer).assign(kind=MEASURED)], ignore_index=True)
    slices["start_ns"] = np.rint(slices["start_us"] * 1000.0).astype(np.int64)
    slices["end_ns"] = np.maximum(np.rint(slices["end_us"] * 1000.0).astype(np.int64), slices["start_ns"])
    slices["row"] = _rows_without_overlap(slices)
    slices["pid"] = slices["rank"].astype(np.int64) + FIRST_RANK_PID
    more = slices["row"].map(lambda row: f", overlapping {row}" if row else "")
    slices["track"] = slices["lane"].astype(str) + " " + slices["kind"] + more
    # Numbered over all ranks: some readers take a tid for the same thread in every process. PREDICTED sorts last.
    keys = ["pid", "lane", "kind", "row"]
    slices = slices.sort_values(keys, ascending=[True, True, False, True], kind="stable").reset_index(drop=True)
    slices["tid"] = slices.groupby(keys, sort=False).ngroup() + 1
    return slices


def _rows_without_overlap(slices: pd.DataFrame) -> np.ndarray:
    """[num_slices] row within the lane: 0, or more where slices of a lane overlap (clocks, concurrent kernels)."""
    row = np.zeros(len(slices), dtype=np.int64)
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    for group in slices.groupby(["rank", "lane", "kind"], sort=False).indices.values():
        positions = np.asarray(group)  # [num_in_lane]
        free_at, others = np.iinfo(np.int64).min, list[tuple[int, int]]()  # row 0; heap of (free at, row) from 1 on
        for position in positions[np.lexsort((end[positions], start[positions]))]:
            if free_at <= start[position]:
                free_at = int(end[position])
            else:
                row[position] = _other_row(others, int(start[position]), int(end[position]))
    return row


def _other_row(others: list[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    row = others[0][1] if others and others[0][0] <= start_ns else len(others) + 1
    replace_or_push = heapq.heapreplace if row <= len(others) else heapq.heappush
    replace_or_push(others, (end_ns, row))
    return row


# What a slice of the timeline says about its node: arguments, and a color (`cname`) of the trace-event format.
#
# predicted slices   by where the latency came from (source)
# measured slices    by how far the prediction is off; none where it is for other hardware, or no one predicted it
#
# Names of colors are those of catapult's color scheme. chrome://tracing draws them; Perfetto's own page colors by name
# (https://github.com/google/perfetto/issues/624) and has source and error among the arguments, where a query finds
# them.

MAX_TEXT = 500  # characters of a text (shapes, mostly)
COLOR_OF_SOURCE = {
    Source.MEASURED: "thread_state_running",
    Source.TRACE: "rail_animation",
    Source.SCALED: "rail_load",
    Source.GNN: "rail_response",
    Source.GNN_CALIBRATED: "thread_state_runnable",
    Source.ANALYTIC: "rail_idle",
    Source.DECLARED: "detailed_memory_dump",
    Source.UNCOVERED: "terrible",
    Source.CLASS_MEDIAN: "generic_work",
}
COLOR_OF_ERROR = ((0.1, "good"), (0.3, "bad"), (np.inf, "terrible"))  # |predicted / measured - 1| up to: color


class NodeArgs:
    """Arguments and colors of nodes, made for as many nodes at a time as are requested.

    Args:
        answer: the prediction; errors are given where it is for the hardware of the trace.
    """

    def __init__(self, answer: StepPrediction) -> None:
        nodes, prediction = answer.prediction.graph.nodes, answer.prediction
        self._columns: dict[str, pd.Series] = {
            "op": nodes["op_name"],
            "source": pd.Series(pd.Categorical([str(source) for source in prediction.source])),
            "predicted_latency_us": pd.Series(prediction.latency_us),
            "measured_latency_us": nodes["latency_us"],
            "error": pd.Series(_errors(answer)),
            "waited_us": nodes["blocked_us"].where(nodes["blocked_us"] > 0),
            "event": nodes["event_name"],
            "shapes": nodes["input_dims"],
            "dtype": nodes["dtype"],
            "message_bytes": nodes["message_bytes"],
            "critical_us": pd.Series(answer.critical_us).where(answer.schedule.on_critical_path),
            "node_id": nodes["node_id"],
        }

    def of(self, node_id: np.ndarray) -> Iterator[dict[str, Any]]:
        """The arguments of each node of `node_id` [n]; what is unknown is left out."""
        result = list[dict[str, Any]]({} for _ in node_id)
        for key, column in self._columns.items():
            values = column.iloc[node_id]
            for row, value, known in zip(result, values.tolist(), values.notna(), strict=True):
                if known:
                    row[key] = value[:MAX_TEXT] if isinstance(value, str) else value
        yield from result


def color_of_source(args: dict[str, Any]) -> str:
    """The color of a predicted slice."""
    return COLOR_OF_SOURCE[Source(args["source"])]


def color_of_error(args: dict[str, Any]) -> str | None:
    """The color of a measured slice; None: no error is given."""
    error = args.get("error")
    return None if error is None else next(color for limit, color in COLOR_OF_ERROR if abs(error) <= limit)


def _errors(answer: StepPrediction) -> np.ndarray:
    """[num_nodes] predicted / measured - 1; NaN where nothing was measured, or on other hardware."""
    measured_us = answer.prediction.graph.nodes["latency_us"].to_numpy()
    comparable = (measured_us > 0) & (answer.measured_step_time_us is not None)
    ratio = np.full(len(measured_us), np.nan)
    np.divide(answer.prediction.latency_us, measured_us, out=ratio, where=comparable)
    return ratio - 1.0


CRITICAL_PID = 0  # the ranks follow, from FIRST_RANK_PID
CHUNK = 8192  # events that are objects at one time

Event = dict[str, Any]


def write_timeline(answer: StepPrediction, path: Path) -> None:
    """Write the document as gzip; the same bytes for the same answer."""
    with path.open("wb") as file, igzip.IGzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        for piece in _pieces(answer):
            packed.write(piece)


def _pieces(answer: StepPrediction) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    yield encode(_head(answer))[:-1] + b',"traceEvents":[\n'  # the object stays open
    events, between = timeline_events(answer), b""
    while chunk := list(itertools.islice(events, CHUNK)):
        yield between + b",\n".join(map(encode, chunk))
        between = b",\n"
    yield b"\n]}\n"


def _head(answer: StepPrediction) -> Event:
    """What is stated about the whole document, with the key of the colors."""
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "run": answer.prediction.graph.name,
            "mode": str(answer.mode),
            "hardware": answer.hardware,
            "predicted_colors": {str(source): color for source, color in COLOR_OF_SOURCE.items()},
            "measured_colors": {f"error up to {100 * limit:g} %": color for limit, color in COLOR_OF_ERROR},
        },
    }


def timeline_events(answer: StepPrediction) -> Iterator[Event]:
    """Every event of the document, one after the other."""
    slices, chain = tracks(answer), critical_chain(answer.prediction.graph, answer.schedule)
    begin_us = np.append(answer.schedule.start_us[chain], answer.schedule.makespan_us)  # [num_on_path + 1]
    begin_ns = np.rint(begin_us * 1000.0).astype(np.int64)
    opens_ns = min(int(slices["start_ns"].min()) if len(slices) else 0, int(begin_ns.min()), 0)
    slices = slices.assign(start_ns=slices["start_ns"] - opens_ns, end_ns=slices["end_ns"] - opens_ns)
    about = NodeArgs(answer)
    yield from _metadata(slices)
    yield from _work(slices, about)
    yield from _critical(answer, chain, begin_ns - opens_ns, about)
    yield from _flows(slices, chain)


def _metadata(slices: pd.DataFrame) -> Iterator[Event]:
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


def _work(slices: pd.DataFrame, about: NodeArgs) -> Iterator[Event]:
    columns = ["name", "kind", "pid", "tid", "start_ns", "end_ns"]
    for first in range(0, len(slices), CHUNK):
        part = slices.iloc[first : first + CHUNK]
        rows = part[columns].itertuples(index=False)
        for (name, kind, *where), args in zip(rows, about.of(part["node_id"].to_numpy()), strict=True):
            color = color_of_source(args) if kind == PREDICTED else color_of_error(args)
            yield _complete(name, kind, *where, args=args, color=color)


def _complete(
    name: str, category: str, pid: int, tid: int, start_ns: int, end_ns: int, *, args: Event, color: str | None
) -> Event:
    times = {"ts": int(start_ns) / 1000, "dur": int(end_ns - start_ns) / 1000}  # us, whole nanoseconds
    event = {"ph": "X", "name": name, "cat": category, "pid": int(pid), "tid": int(tid), **times, "args": args}
    return event if color is None else {**event, "cname": color}


def _critical(answer: StepPrediction, chain: np.ndarray, begin_ns: np.ndarray, about: NodeArgs) -> Iterator[Event]:
    """The critical path as one track of its own: each node for as long as it holds the step back.

    Args:
        answer: whose path.
        chain: [num_on_path] its nodes in the order of time.
        begin_ns: [num_on_path + 1] when the path reaches each, and its end.
        about: what is stated of a node.
    """
    nodes = answer.prediction.graph.nodes
    lasting = np.flatnonzero(np.diff(begin_ns) > 0)
    for first in range(0, len(lasting), CHUNK):
        at = lasting[first : first + CHUNK]
        rank, kind = nodes["rank"].to_numpy()[chain[at]], nodes["node_type"].to_numpy()[chain[at]]
        for place, args, on, what in zip(at, about.of(chain[at]), rank, kind, strict=True):
            name = f"{args.get('op', what)} ({what}{f', rank {on}' if on >= 0 else ''})"
            times = int(begin_ns[place]), int(begin_ns[place + 1])
            yield _complete(name, "critical", CRITICAL_PID, 0, *times, args=args, color=color_of_source(args))


def _flows(slices: pd.DataFrame, chain: np.ndarray) -> Iterator[Event]:
    on_path = slices[(slices["kind"] == PREDICTED) & slices["node_id"].isin(chain)]
    drawn = on_path.drop_duplicates("node_id", keep="first").set_index("node_id")
    path = drawn.loc[chain[np.isin(chain, drawn.index)], ["pid", "tid", "start_ns"]].to_numpy()  # [num_drawn, 3]
    for number, (source, target) in enumerate(itertools.pairwise(path), start=1):
        yield _flow("s", number, source)
        yield {**_flow("f", number, target), "bp": "e"}  # bind to the slice around it, not to the next one


def _flow(phase: str, number: int, at: np.ndarray) -> Event:
    pid, tid, start_ns = (int(v) for v in at)
    where = {"pid": pid, "tid": tid, "ts": start_ns / 1000}
    return {"ph": phase, "name": "critical path", "cat": "critical", "id": number, **where}
