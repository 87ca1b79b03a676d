"""timeline.json.gz: trace-event JSON for Perfetto, predicted next to measured.

    critical path (predicted)   |T2|--- gemm ---|-- all_reduce --|T1|        one process, in the order of time
    rank 0   stream 0  predicted   |--- gemm ---|-- all_reduce --|           arrows follow the critical path
             stream 0  measured    |---- gemm -----|--- all_reduce ---|
             thread 0  predicted |T2|T4|T3|                      |T1|

Format: complete events (ph X) that never overlap on one track, metadata (M) for names and order, flows (s, f).
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
Events are encoded column by column and written a chunk at a time: only the table of slices is as long as the trace.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip

from gnnperf.core import Source
from gnnperf.predict import StepPrediction, critical_chain
from gnnperf.report.summary import arrow_texts, measured_slices, predicted_slices

# Slices on tracks: whole nanoseconds, and no overlap on a track, as the trace-event format asks.

PREDICTED, MEASURED = "predicted", "measured"
FIRST_RANK_PID = 1  # process number of rank 0


def tracks(result: StepPrediction) -> pd.DataFrame:
    """Slices of both kinds with whole nanoseconds, process (pid), track (tid) and the track's name."""
    both = [predicted_slices(result), measured_slices(result)]
    slices = pd.concat(both, ignore_index=True)
    kind = np.repeat([0, 1], [len(part) for part in both])
    slices["kind"] = pd.Categorical.from_codes(kind, pd.Index([PREDICTED, MEASURED]))
    slices["start_ns"] = np.rint(slices["start_us"] * 1000.0).astype(np.int64)
    slices["end_ns"] = np.maximum(np.rint(slices["end_us"] * 1000.0).astype(np.int64), slices["start_ns"])
    slices["pid"] = slices["rank"].astype(np.int64) + FIRST_RANK_PID
    slices["row"] = _rows_without_overlap(slices)
    # Numbered over all ranks: some readers take a tid for the same thread in every process.
    keys = [slices["row"].to_numpy(), kind, slices["lane"].cat.codes.to_numpy(), slices["pid"].to_numpy()]
    order = np.lexsort(keys)
    changes = [np.diff(key[order], prepend=-1) != 0 for key in keys]
    slices = slices.iloc[order].reset_index(drop=True)
    slices["tid"] = np.cumsum(np.any(changes, axis=0)) if len(slices) else np.zeros(0, np.int64)
    heads = slices.drop_duplicates("tid")
    named = [f"{lane} {of}{f', overlapping {row}' if row else ''}"
             for lane, of, row in heads[["lane", "kind", "row"]].itertuples(index=False)]  # fmt: skip
    number, distinct = pd.factorize(np.array(named, dtype=object))
    slices["track"] = pd.Categorical.from_codes(number[slices["tid"].to_numpy() - 1], pd.Index(distinct))
    return slices


def _rows_without_overlap(slices: pd.DataFrame) -> np.ndarray:
    """[num_slices] row within the lane: 0, or more where slices of a lane overlap (clocks, concurrent kernels)."""
    row = np.zeros(len(slices), dtype=np.int64)
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    for group in slices.groupby(["pid", "lane", "kind"], sort=False, observed=True).indices.values():
        positions = np.asarray(group)  # [num_in_lane]
        positions = positions[np.lexsort((end[positions], start[positions]))]
        if (start[positions][1:] >= end[positions][:-1]).all():
            continue
        free_at, others = np.iinfo(np.int64).min, list[tuple[int, int]]()  # row 0; heap of (free at, row) from 1 on
        for position in positions:
            if free_at <= start[position]:
                free_at = int(end[position])
                continue
            row[position] = others[0][1] if others and others[0][0] <= start[position] else len(others) + 1
            replace_or_push = heapq.heapreplace if row[position] <= len(others) else heapq.heappush
            replace_or_push(others, (int(end[position]), int(row[position])))
    return row


# JSON of whole columns: text of each value, members of an object, objects.

Texts = Any  # an array [n] of JSON texts, null where unknown, or one text for all (pyarrow has no types)
MAX_TEXT = 500  # characters of a text (shapes, mostly)


def _values(column: pd.Series) -> pa.Array:
    """[n] numbers, or texts that are JSON already; null where a value is unknown."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return pa.array(column, from_pandas=True)
    return arrow_texts(column, lambda word: msgspec.json.encode(str(word)[:MAX_TEXT]).decode())


def _json(values: pa.Array) -> pa.StringArray:
    """[n] JSON of each value."""
    return pc.cast(values, pa.string())


def _constant(value: Any) -> pa.Scalar:
    return pa.scalar(msgspec.json.encode(value).decode())


def _us(ns: np.ndarray) -> pa.StringArray:
    return _json(pa.array(ns / 1000.0))


def _objects(members: Mapping[str, Texts]) -> pa.StringArray:
    """[n] JSON objects; a member that is null is left out, the first one never is."""
    parts: list[Texts] = []
    for number, (key, text) in enumerate(members.items()):
        name = f'{"," if number else "{"}"{key}":'
        num_null = 0 if isinstance(text, pa.Scalar) else text.null_count
        if num_null == 0:  # joined once, with all others
            parts += [name, text]
        elif num_null < len(text):
            parts.append(pc.binary_join_element_wise(name, text, ""))
    return pc.binary_join_element_wise(*parts, "}", "", null_handling="skip")


# What a slice of the timeline states about its node: arguments, and a color (`cname`) of the trace-event format.
#
# predicted slices   by where the latency came from (source)
# measured slices    by how far the prediction is off; none where it is for other hardware, or no one predicted it
#
# Names of colors are those of catapult's color scheme. chrome://tracing draws them; Perfetto's own page colors by name
# (https://github.com/google/perfetto/issues/624) and has source and error among the arguments, where a query finds
# them.

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


class _Nodes:
    """Arguments and colors of nodes, encoded for as many nodes at a time as are requested.

    Errors are given where the prediction is for the hardware of the trace.
    """

    def __init__(self, result: StepPrediction) -> None:
        nodes, prediction = result.prediction.graph.nodes, result.prediction
        measured_us, source = nodes["latency_us"], prediction.coded["source"]
        comparable = (measured_us > 0) & (result.measured_step_time_us is not None)
        error = (prediction.latency_us / measured_us - 1.0).where(comparable).to_numpy()  # [num_nodes] NaN: unknown
        bounds = np.array([limit for limit, _ in COLOR_OF_ERROR])
        code = np.where(np.isnan(error), -1, np.searchsorted(bounds, np.abs(np.nan_to_num(error))))
        self._by_source = _values(source.cat.rename_categories(lambda name: COLOR_OF_SOURCE[Source(name)]))
        colors = pd.Index([color for _, color in COLOR_OF_ERROR])
        self._by_error = _values(pd.Series(pd.Categorical.from_codes(code, colors)))
        columns = {
            "node_id": nodes["node_id"],
            "op": nodes["op_name"],
            "source": source,
            "predicted_latency_us": pd.Series(prediction.latency_us),
            "measured_latency_us": nodes["latency_us"],
            "error": pd.Series(error),
            "waited_us": nodes["blocked_us"].where(nodes["blocked_us"] > 0),
            "event": nodes["event_name"],
            "shapes": nodes["input_dims"],
            "dtype": nodes["dtype"],
            "message_bytes": nodes["message_bytes"],
            "critical_us": pd.Series(result.critical_us).where(result.schedule.on_critical_path),
        }
        self._columns = {key: _values(column) for key, column in columns.items()}

    def colors(self, node_id: np.ndarray) -> tuple[pa.StringArray, pa.StringArray]:
        """[n] of predicted slices, and [n] of measured ones; null: no error is given."""
        by_source, by_error = (colors.take(pa.array(node_id)) for colors in (self._by_source, self._by_error))
        return _json(by_source), _json(by_error)

    def args(self, node_id: np.ndarray) -> pa.StringArray:
        """[n] the arguments of each node of `node_id` [n]; what is unknown is left out."""
        distinct, place = np.unique(node_id, return_inverse=True)  # most nodes are predicted and measured
        rows = pa.array(distinct)
        return _objects({key: _json(column.take(rows)) for key, column in self._columns.items()}).take(pa.array(place))


CRITICAL_PID = 0  # the ranks follow, from FIRST_RANK_PID
CHUNK = 32_768  # events that are encoded at one time
ENCODERS = 2  # threads; Arrow encodes without the interpreter's lock
Objects = Callable[[], pa.StringArray]  # makes some events


def write_timeline(result: StepPrediction, slices: pd.DataFrame, path: Path) -> None:
    """Write the document of a prediction and its `tracks` as gzip; the same bytes for the same prediction."""
    with ExitStack() as opened:
        file = opened.enter_context(path.open("wb"))
        packed = opened.enter_context(igzip.IGzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        others = opened.enter_context(ThreadPoolExecutor(ENCODERS))
        encoded = deque[Future[bytes]]()
        for piece in _pieces(result, slices):  # some are encoded while one is packed
            encoded.append(others.submit(piece))
            if len(encoded) > ENCODERS:
                packed.write(encoded.popleft().result())
        while encoded:
            packed.write(encoded.popleft().result())


def _pieces(result: StepPrediction, slices: pd.DataFrame) -> Iterator[Callable[[], bytes]]:
    chain = critical_chain(result.prediction.graph, result.schedule)
    begin_us = np.append(result.schedule.start_us[chain], result.schedule.makespan_us)  # [num_on_path + 1]
    begin_ns = np.rint(begin_us * 1000.0).astype(np.int64)
    opens_ns = min(int(slices["start_ns"].min()) if len(slices) else 0, int(begin_ns.min()), 0)
    slices = slices.assign(start_ns=slices["start_ns"] - opens_ns, end_ns=slices["end_ns"] - opens_ns)
    about = _Nodes(result)
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "run": result.prediction.graph.name,
            "mode": str(result.mode),
            "hardware": result.hardware,
            "predicted_colors": {str(source): color for source, color in COLOR_OF_SOURCE.items()},
            "measured_colors": {f"error up to {100 * limit:g} %": color for limit, color in COLOR_OF_ERROR},
        },
    }
    yield lambda: msgspec.json.encode(head)[:-1] + b',"traceEvents":[\n'  # the object stays open
    yield lambda: b",\n".join(map(msgspec.json.encode, _metadata(slices)))
    on_path = _critical(result, chain, begin_ns - opens_ns, about)
    for objects in itertools.chain(_work(slices, about), on_path, _flows(slices, chain)):
        yield partial(_text, objects)
    yield lambda: b"\n]}\n"


def _text(objects: Objects) -> bytes:
    text = pc.binary_join_element_wise(",\n", objects(), "")
    return text.buffers()[2].to_pybytes()[: pc.sum(pc.binary_length(text)).as_py()] if len(text) else b""


def _metadata(slices: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names = {CRITICAL_PID: "critical path (predicted)"}
    names |= {pid: f"rank {pid - FIRST_RANK_PID}" for pid in np.unique(slices["pid"]).tolist()}
    for pid, name in names.items():
        yield _meta("process_name", pid, 0, name=name)
        yield _meta("process_sort_index", pid, 0, sort_index=pid)
    yield _meta("thread_name", CRITICAL_PID, 0, name="in the order of time")
    for pid, tid, name in slices.drop_duplicates("tid")[["pid", "tid", "track"]].itertuples(index=False):
        yield _meta("thread_name", pid, tid, name=name)
        yield _meta("thread_sort_index", pid, tid, sort_index=tid)


def _meta(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": int(pid), "tid": int(tid), "args": args}


def _work(slices: pd.DataFrame, about: _Nodes) -> Iterator[Objects]:
    columns = {name: _values(slices[name]) for name in ("name", "kind", "pid", "tid")}
    start_ns, end_ns = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    node, predicted = slices["node_id"].to_numpy(), (slices["kind"] == PREDICTED).to_numpy()

    def chunk(part: slice) -> pa.StringArray:
        own = {name: _json(column[part]) for name, column in columns.items()}
        color = pc.if_else(pa.array(predicted[part]), *about.colors(node[part]))
        return _complete(own["name"], own["kind"], own["pid"], own["tid"], (start_ns[part], end_ns[part]),
                         args=about.args(node[part]), color=color)  # fmt: skip

    for first in range(0, len(slices), CHUNK):
        yield partial(chunk, slice(first, first + CHUNK))


def _complete(
    name: Texts, category: Texts, pid: Texts, tid: Texts, span_ns: tuple[np.ndarray, np.ndarray], *, args: Texts,
    color: Texts,
) -> pa.StringArray:  # fmt: skip
    """[n] complete events; times are us with whole nanoseconds."""
    times = {"ts": _us(span_ns[0]), "dur": _us(span_ns[1] - span_ns[0])}
    return _objects({"ph": _constant("X"), "name": name, "cat": category, "pid": pid, "tid": tid, **times,
                     "args": args, "cname": color})  # fmt: skip


def _critical(result: StepPrediction, chain: np.ndarray, begin_ns: np.ndarray, about: _Nodes) -> Iterator[Objects]:
    """The critical path as one track of its own: each node for as long as it holds the step back.

    `chain`: [num_on_path] its nodes in the order of time; `begin_ns`: [num_on_path + 1] when the path reaches each, and
    its end.
    """
    nodes = result.prediction.graph.nodes[["op_name", "node_type", "rank"]]
    lasting, number = np.flatnonzero(np.diff(begin_ns) > 0), _constant(CRITICAL_PID)

    def chunk(at: np.ndarray) -> pa.StringArray:
        rows = nodes.iloc[chain[at]].astype(object)
        names = [f"{kind if op is None else op} ({kind}{f', rank {rank}' if rank >= 0 else ''})"
                 for op, kind, rank in rows.where(rows.notna(), None).itertuples(index=False)]  # fmt: skip
        return _complete(
            _json(_values(pd.Series(pd.Categorical(names)))), _constant("critical"), number, _constant(0),
            (begin_ns[at], begin_ns[at + 1]), args=about.args(chain[at]),
            color=about.colors(chain[at])[0],
        )  # fmt: skip

    for first in range(0, len(lasting), CHUNK):
        yield partial(chunk, lasting[first : first + CHUNK])


def _flows(slices: pd.DataFrame, chain: np.ndarray) -> Iterator[Objects]:
    """Arrows from each slice of the path to the next one; they bind to the slice around their end."""
    on_path = slices[(slices["kind"] == PREDICTED) & slices["node_id"].isin(chain)]
    drawn = on_path.drop_duplicates("node_id", keep="first").set_index("node_id")
    path = drawn.loc[chain[np.isin(chain, drawn.index)], ["pid", "tid", "start_ns"]].to_numpy()  # [num_drawn, 3]

    def side(phase: str, ends: np.ndarray, more: Mapping[str, Texts]) -> pa.StringArray:
        pid, tid = (_json(pa.array(column)) for column in ends.T[:2])
        return _objects({
            "ph": _constant(phase), "name": _constant("critical path"), "cat": _constant("critical"),
            "id": _json(pa.array(np.arange(1, len(ends) + 1))), "pid": pid, "tid": tid, "ts": _us(ends[:, 2]), **more,
        })  # fmt: skip

    yield partial(side, "s", path[:-1], {})
    yield partial(side, "f", path[1:], {"bp": _constant("e")})
