"""Which ranks and steps of a run are read: `ranks=0-7,12` and `steps=3:6`, the numbers of the marks ProfilerStep#N."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import EventKind, InputError, schema
from gnnperf.trace.checks import listed, step_rows
from gnnperf.trace.table import REFERENCES, RunTrace, TraceTable

MAX_NUMBER = 10**9
RANKS = re.compile(r"\d{1,8}(?:-\d{1,8})?(?:,\d{1,8}(?:-\d{1,8})?)*")
STEPS = re.compile(r"(\d{1,9})?(:)?(\d{1,9})?")
NUMBER = re.compile(r"(\d{1,9})(?!\d)")  # of a step mark


@dataclass(frozen=True)
class Selection:
    """What is read; None: everything."""

    ranks: tuple[range, ...] | None = None
    steps: range | None = None  # numbers of step marks

    def has_rank(self, rank: int) -> bool:
        """Whether a rank is read."""
        return self.ranks is None or any(rank in some for some in self.ranks)


EVERYTHING = Selection()


def selection(ranks: object = None, steps: object = None) -> Selection:
    """The selection that a user states: ranks such as 0-7,12 (both ends included), steps such as 3:6 (6 excluded).

    Raises:
        InputError: another form.
    """
    chosen_ranks = chosen_steps = None
    if ranks is not None:
        text = ",".join(map(str, ranks)) if isinstance(ranks, list | tuple) else str(ranks)
        if not RANKS.fullmatch(text):
            raise InputError(f"ranks is {text!r}", allowed="numbers and ranges, such as 0-7,12")
        ends = [part.split("-") for part in text.split(",")]
        chosen_ranks = tuple(range(int(part[0]), int(part[-1]) + 1) for part in ends)
    if steps is not None:
        parts = STEPS.fullmatch(str(steps))
        if parts and (parts[1] or parts[3]) and (parts[2] or not parts[3]):
            first = int(parts[1] or 0)
            chosen_steps = range(first, int(parts[3] or MAX_NUMBER) if parts[2] else first + 1)
        if not chosen_steps:
            raise InputError(f"steps is {str(steps)!r}", allowed="a number, or first:end without the end, such as 3:6")
    return Selection(chosen_ranks, chosen_steps)


def step_numbers(table: TraceTable) -> np.ndarray:
    """[num_marks] the number of each step mark, in order of time; -1 none."""
    names = table.events["name"].iloc[step_rows(table)].astype(str)
    return names.str.extract(NUMBER, expand=False).fillna("-1").to_numpy().astype(np.int64)


def of_step(run: RunTrace, mark: str) -> RunTrace:
    """The run with the events of the step with this mark; a rank without the mark keeps all of its events."""
    number = NUMBER.search(mark)
    if number is None:  # of a run without marks
        return run
    step = range(int(number[1]), int(number[1]) + 1)
    return replace(run, tables=tuple(
        in_steps(table, step) if step.start in step_numbers(table) else table for table in run.tables))  # fmt: skip


def in_steps(table: TraceTable, steps: range) -> TraceTable:
    """The events of some steps: host events that begin in them, and the device work that these launch.

    Device work that no call launches is taken by its own begin; what earlier steps launched is left out.

    Raises InputError: there is no such step.
    """
    events, numbers = table.events, step_numbers(table)
    marks = step_rows(table)[np.isin(numbers, np.arange(steps.start, min(steps.stop, numbers.max(initial=0) + 1)))]
    if not len(marks):
        last, there = f" to {steps.stop - 1}" if len(steps) > 1 else "", listed(set(numbers.tolist()))
        raise InputError(f"holds no step {steps.start}{last}", where=table.meta.source_file,
                         allowed=f"steps of the trace: {there or 'no step is marked'}")  # fmt: skip
    start, launch = events["start_ns"].to_numpy(), events["launch_event"].to_numpy()
    following = start[step_rows(table)]  # a step ends where the next begins
    following = following[following > start[marks].max()]
    inside = (start >= start[marks].min()) & (start < following.min(initial=np.iinfo(np.int64).max))
    on_host = events["thread"].to_numpy() >= 0
    calls = (events["kind"] == EventKind.RUNTIME).any()
    unnamed = (launch < 0) & ((events["correlation"].to_numpy() <= 0) | (not calls))  # no call is its launch
    keep = inside & (on_host | unnamed)
    keep |= ~on_host & (launch >= 0) & keep[launch]
    row = np.where(keep, np.cumsum(keep) - 1, -1)
    events = events[keep].reset_index(drop=True)  # references to others are none
    first = int(events["start_ns"].iloc[0])
    changed = {name: np.where(events[name] >= 0, row[events[name]], -1) for name in REFERENCES}
    coded = {c.name: events[c.name] for c in schema.EVENT_COLUMNS if c.dtype == "category"}
    texts = {name: schema.in_use(schema.codes_of(one), schema.categories_of(one)) for name, one in coded.items()}
    events = events.assign(**changed, **texts, event_id=np.arange(len(events)), start_ns=events["start_ns"] - first)
    feeds = row[table.feeds.to_numpy()]  # [num_feeds, 2]
    own = pd.DataFrame(feeds[(feeds >= 0).all(axis=1)], columns=table.feeds.columns)
    return TraceTable(replace(table.meta, base_time_ns=table.meta.base_time_ns + first), events, own)
