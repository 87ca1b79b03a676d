"""The events of one rank <-> columns that compress: what is left of each number once its neighbors are known.

A step repeats the one before, and one rank the other, in everything but time. So rows are stored lane by lane (a host
thread, a device stream), and what repeats is made to look the same each time:

    start_gap_ns  } time since the moment before it in its lane, starts and ends taken together in the order
    end_gap_ns    } that `num_inside` gives, so that a gap is one stretch of a lane in which nothing begins or ends
    num_inside      starts of its lane between the event's own start and its end
    row_shift       row minus the row that start and duration by themselves would give; 0 but for ties
    *_back          references to events: rows back in the stored order instead of a row number
    *_step          identifiers that count up: difference to the last known one in the stored order

        |--------- a ---------|          starts and ends:  a.start b.start b.end c.start c.end a.end
           |- b -|  |- c -|              num_inside:       a 2, b 0, c 0

Texts are numbered here and not by Parquet, which packs such numbers into bits, where no compressor finds a repetition.
All of it is integer arithmetic and exactly inverted, whatever the events: unsorted, overlapping, of length zero.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pandas as pd

from gnnperf.core import InputError, schema
from gnnperf.trace.columns import Codes, sorted_rows
from gnnperf.trace.table import REFERENCES

Columns = dict[str, np.ndarray]

COUNTERS = ("correlation", "external_id", "sequence", "wait_event")  # count up; -1 unknown
TIMES = ("event_id", "start_ns", "duration_ns")
LANE = ("thread", "device", "stream")
TEXTS = tuple(c.name for c in schema.EVENT_COLUMNS if c.dtype == "category")
AS_THEY_ARE = tuple(c.name for c in schema.EVENT_COLUMNS if c.name not in (*REFERENCES, *COUNTERS, *TIMES, *TEXTS))


def packed_dtypes() -> dict[str, str]:
    """Every packed column and its dtype."""
    dtypes = {c.name: c.dtype for c in schema.EVENT_COLUMNS}
    moments = dict.fromkeys(("start_gap_ns", "end_gap_ns", "num_inside", "row_shift"), "int64")
    related = {f"{name}_back": "int64" for name in REFERENCES} | {f"{name}_step": "int64" for name in COUNTERS}
    return moments | related | {name: dtypes[name] for name in AS_THEY_ARE} | dict.fromkeys(TEXTS, "int32")


def pack(events: pd.DataFrame, texts: Mapping[str, Codes]) -> Columns:
    """Packed columns [num_events] of one rank; its texts are numbered after those that `texts` (by column) holds."""
    order = np.lexsort([np.arange(len(events)), *(events[name].to_numpy() for name in reversed(LANE))])
    place = _inverse(order)  # [num_events] row -> place in the stored order
    columns = _packed_times(events, order)
    for name in REFERENCES:
        row = events[name].to_numpy()[order]
        columns[f"{name}_back"] = narrow(np.where(row < 0, 0, _without_zero(np.arange(len(row)) - place[row])))
    for name in COUNTERS:
        columns[f"{name}_step"] = narrow(_steps(events[name].to_numpy()[order]))
    for name in TEXTS:
        columns[name] = _codes(schema.codes_of(events[name])[order], schema.categories_of(events[name]), texts[name])
    return columns | {name: narrow(events[name].to_numpy()[order]) for name in AS_THEY_ARE}


def narrow(values: np.ndarray) -> np.ndarray:
    """The same values; int64 that fit into int32 in half of the memory."""
    fits = values.dtype == np.int64 and values.min(initial=0) >= -(2**31) and values.max(initial=0) < 2**31
    return values.astype(np.int32) if fits else values


def unpack(columns: Mapping[str, np.ndarray], texts: Mapping[str, list[str]], where: str) -> pd.DataFrame:
    """The events of one rank from its packed columns [num_events] and the texts of each category column.

    Categories are the rank's own, in order of first appearance.

    Raises InputError: the columns contradict each other: damaged.
    """
    inside = columns["num_inside"]
    _refuse_unless(((inside >= 0) & (inside < len(inside) - np.arange(len(inside)))).all(), "num_inside", where)
    starts, ends = _moments(inside)
    gap = np.empty(2 * len(inside), dtype=np.int64)
    gap[starts], gap[ends] = columns["start_gap_ns"], columns["end_gap_ns"]
    time = np.cumsum(gap)
    start, duration = time[starts], time[ends] - time[starts]  # [num_events] in the stored order
    row = _guessed_rows(start, duration) + columns["row_shift"]
    within = ((row >= 0) & (row < len(row))).all()
    _refuse_unless(within and (np.bincount(row, minlength=len(row)) == 1).all(), "row_shift", where)
    order = _inverse(row)  # [num_events] row -> place in the stored order
    result: dict[str, object] = dict(zip(TIMES, (np.arange(len(row)), start[order], duration[order]), strict=True))
    for name in REFERENCES:
        back = columns[f"{name}_back"]
        place = np.arange(len(back)) - _with_zero(back)
        inside = (place >= 0) & (place < len(row)) | (back == 0)
        _refuse_unless(inside.all(), name, where, "names a row that is not there")
        result[name] = np.where(back == 0, -1, row[np.where(back == 0, 0, place)])[order]
    for name in COUNTERS:
        result[name] = _counted(columns[f"{name}_step"])[order]
    for name in TEXTS:
        result[name] = _category(columns[name][order], texts[name], name, where)
    result |= {name: columns[name][order] for name in AS_THEY_ARE}
    return pd.DataFrame({c.name: result[c.name] for c in schema.EVENT_COLUMNS}, copy=False)


def _packed_times(events: pd.DataFrame, order: np.ndarray) -> Columns:
    start, duration = (events[name].to_numpy()[order] for name in ("start_ns", "duration_ns"))
    changes = np.zeros(max(len(order) - 1, 0), dtype=bool)
    for name in LANE:
        lane = events[name].to_numpy()[order]
        changes |= lane[1:] != lane[:-1]
    first = np.flatnonzero(changes) + 1
    inside = np.empty(len(start), dtype=np.int64)  # starts of the lane after the event's own and before its end
    for begin, end in pairwise([0, *first.tolist(), len(order)]):
        rows = slice(begin, end)
        before_end = np.searchsorted(start[rows], (start + duration)[rows], side="left")
        inside[rows] = np.maximum(before_end - np.arange(end - begin) - 1, 0)
    starts, ends = _moments(inside)
    time = np.empty(2 * len(start), dtype=np.int64)
    time[starts], time[ends] = start, start + duration
    gap = np.diff(time, prepend=np.int64(0))
    shift = order - _guessed_rows(start, duration)
    columns = {"start_gap_ns": gap[starts], "end_gap_ns": gap[ends], "num_inside": inside, "row_shift": shift}
    return {name: narrow(column) for name, column in columns.items()}


def _moments(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the starts and of the ends [num_events each] among all 2 x num_events moments.

    An end comes after the starts inside its event; of ends between the same two starts, the later event's is first.
    """
    index = np.arange(len(inside))
    starts_before = index + inside + 1  # [num_events] of each end
    by_time = np.lexsort((-index, starts_before))
    ends = np.empty_like(index)
    ends[by_time] = index + starts_before[by_time]
    return index + np.searchsorted(starts_before[by_time], index, side="right"), ends


def _guessed_rows(start: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """[num_events] row of each stored event, if rows are sorted by start, longer first, ties as stored."""
    return _inverse(sorted_rows(start, lambda rows: (-duration[rows],)))


def _inverse(order: np.ndarray) -> np.ndarray:
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def _steps(values: np.ndarray) -> np.ndarray:
    """[n] difference of each known value to the known one before it; 0 where unknown (-1)."""
    steps = np.zeros(len(values), dtype=np.int64)
    known = values != -1
    steps[known] = _without_zero(np.diff(values[known], prepend=np.int64(0)))
    return steps


def _counted(steps: np.ndarray) -> np.ndarray:
    values = np.full(len(steps), -1, dtype=np.int64)
    known = steps != 0
    values[known] = np.cumsum(_with_zero(steps[known]))
    return values


def _without_zero(values: np.ndarray) -> np.ndarray:
    """Zero and below move down by one: 0 is free to say "none"."""
    return values - (values <= 0)


def _with_zero(values: np.ndarray) -> np.ndarray:
    return values + (values < 0)


def _codes(codes: np.ndarray, known: list[str], texts: Codes) -> np.ndarray:
    """[n] number of each text over all ranks, from that in its column; -1 null. Only texts in use are numbered."""
    used = pd.unique(codes[codes >= 0])
    number = np.full(len(known) + 1, -1, dtype=np.int32)
    number[used] = texts.of([known[code] for code in used.tolist()])
    return number[codes]


def _category(codes: np.ndarray, texts: list[str], name: str, where: str) -> pd.Categorical:
    _refuse_unless(((codes >= -1) & (codes < len(texts))).all(), name, where)
    own, used = pd.factorize(np.where(codes < 0, len(texts), codes))
    known = used < len(texts)
    number = np.where(known, np.cumsum(known) - 1, -1).astype(np.int32)  # position among those that are not null
    return schema.categorical(number[own], [texts[code] for code in used[known]])


def _refuse_unless(
    sound: bool | np.bool_, column: str, where: str, what: str = "does not fit the other columns"
) -> None:
    if not sound:
        raise InputError(f"column {column!r} {what}", where=where, remedy="import the trace again")
