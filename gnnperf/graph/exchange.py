"""Uneven exchanges: what an all-to-all with parts of different sizes moves, by the sizes that its call states.

c10d::alltoall_base_(output, input, group, output_split_sizes, input_split_sizes, ...)   rows of the first dimension
c10d::alltoall_(outputs, inputs, group, ...)                                             lists of tensors

The rank that sends or receives most rules. An even exchange of S bytes per rank moves (n-1)/n S over its link, so one
that moves b there is as long as an even one of n/(n-1) b. What stays on a rank does not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gnnperf.graph.event_columns import RankEvents

BASE, LISTS = "c10d::alltoall_base_", "c10d::alltoall_"
RECEIVED_AT, SENT_AT = 3, 4  # split sizes among the inputs of BASE
RANKS = re.compile(r"\[\d+(,\d+)*\]")

Splits = tuple[list[float], list[float]]  # elements to and from each rank of the group, in its order


def even_bytes(events: RankEvents, item_bytes: np.ndarray) -> np.ndarray:
    """[num_events] message of the even exchange that keeps this rank as busy; NaN: not uneven, or parts not stated.

    Args:
        events: of one rank.
        item_bytes: [num_events] bytes per element of a message.
    """
    found, groups = np.full(len(events.name), np.nan), events.column("group")
    for event in np.flatnonzero(np.isin(events.name, (BASE, LISTS))).tolist():
        splits = _splits(events, event)
        place = None if splits is None else _place(events.rank, groups[event], len(splits[0]))
        if splits is not None and place is not None:
            found[event] = _even_elements(splits, place) * item_bytes[event]
    return found


def stated_around(events: RankEvents, values: np.ndarray, places: Sequence[int]) -> float:
    """The first known one of `values` [num_events] at some events or at what encloses them; NaN without any."""
    around = (event for place in places for event in _enclosing(events, place))
    return next((float(values[event]) for event in around if not np.isnan(values[event])), float("nan"))


def _enclosing(events: RankEvents, event: int) -> Iterator[int]:
    """The event, then what encloses it, innermost first."""
    while event >= 0:
        yield event
        event = int(events.parent[event])


def _even_elements(splits: Splits, place: int) -> float:
    ranks = len(splits[0])
    busiest = max(sum(parts) - parts[place] for parts in splits)
    return busiest * ranks / (ranks - 1)


def _splits(events: RankEvents, event: int) -> Splits | None:
    """Elements sent to and received from each rank; None where nothing says, or the call is even."""
    row = events.table.events.iloc[event]
    if events.name[event] == LISTS:
        received, sent = _parts(_json(row["input_dims"]), 0), _parts(_json(row["input_dims"]), 1)
    else:
        values = _json(row["input_values"])
        sent = _elements(values, SENT_AT, float(row["in_elements"]))
        received = _elements(values, RECEIVED_AT, float(row["out_elements"]))
    good = sent is not None and received is not None and len(sent) == len(received) > 1
    return (sent, received) if good and sent is not None and received is not None else None


def _elements(values: Any, place: int, total: float) -> list[float] | None:
    """Elements of each part from its rows, as all parts together have `total` elements."""
    rows = _json(values[place]) if isinstance(values, list) and len(values) > place else None
    if not isinstance(rows, list) or not rows or not all(isinstance(n, int) and n >= 0 for n in rows):
        return None
    if sum(rows) == 0:
        return [0.0] * len(rows)
    return None if np.isnan(total) else [total * n / sum(rows) for n in rows]


def _parts(dims: Any, place: int) -> list[float] | None:
    """Elements of each tensor of a list."""
    shapes = dims[place] if isinstance(dims, list) and len(dims) > place else None
    if not isinstance(shapes, list) or not all(isinstance(shape, list) for shape in shapes):
        return None
    return [float(np.prod(shape)) for shape in shapes]


def _place(rank: int, group: str | None, ranks: int) -> int | None:
    """The rank's place in its group of `ranks`: in the list of ranks; in all ranks, where no group is stated."""
    if group is None:
        return rank if rank < ranks else None
    members = [int(member) for member in group[1:-1].split(",")] if RANKS.fullmatch(group) else []
    return members.index(rank) if rank in members and len(members) == ranks else None


def _json(text: Any) -> Any:
    """The value of a JSON text; None where it is none (a profiler cuts long lists off)."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
