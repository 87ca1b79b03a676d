"""Step marks of all ranks -> the whole steps of a run.

rank 0   |ProfilerStep#4|ProfilerStep#5|ProfilerStep#6|  sync at the window's end
rank 1    |ProfilerStep#4|ProfilerStep#5|ProfilerStep#6|
         a step lasts until the next mark; the last one until its own end
"""

from dataclasses import dataclass

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.event_columns import BACKWARD, STEP_MARK, RankEvents, by_category

WINDOW = "window"


@dataclass(frozen=True)
class StepWindows:
    """The steps all ranks have in common."""

    names: tuple[str, ...]  # [num_steps] marks as written, or ("window",) for traces without marks
    begin_ns: np.ndarray  # [num_ranks, num_steps] host time
    end_ns: np.ndarray  # [num_ranks, num_steps] where the next step begins
    # [num_ranks, num_steps] CPU end of the step: where the next mark begins, or the last mark ends
    cpu_end_ns: np.ndarray
    main_thread: np.ndarray  # [num_ranks] thread that carries the marks, or the busiest outside of backward
    continues: np.ndarray  # [num_steps] bool, the step before it in the run is the step before it here: it has a period

    @property
    def has_marks(self) -> bool:
        """Whether the trace names its steps."""
        return self.names != (WINDOW,)

    def step_of(self, rank_index: int, moment_ns: np.ndarray) -> np.ndarray:
        """[n] step ordinal of each host moment; -1 outside whole steps."""
        begin, end = self.begin_ns[rank_index], self.end_ns[rank_index]
        step = np.searchsorted(begin, moment_ns, side="right") - 1
        inside = (step >= 0) & (moment_ns < np.where(step >= 0, end[step], 0))
        return np.where(inside, step, -1).astype(np.int32)


def step_windows(ranks: list[RankEvents]) -> StepWindows:
    """Find the steps that every rank has."""
    marks = [step_marks(events) for events in ranks]
    common = set.intersection(*(set(m) for m in marks)) if marks else set()
    if not common:
        return _one_window(ranks)
    names = sorted(common, key=lambda name: marks[0][name][0])
    begin = np.array([[m[name][0] for name in names] for m in marks])  # [num_ranks, num_steps]
    mark_end = np.array([[max(m[name][1], m[name][0] + 1) for name in names] for m in marks])  # no step is empty
    following = np.c_[begin[:, 1:], mark_end[:, -1:]]
    # A missing mark in the middle ends the step before it at its own end.
    number = np.array([int(STEP_MARK.match(name)[1]) for name in names])  # type: ignore[index]
    adjacent = np.r_[np.diff(number) == 1, False]  # [num_steps]
    end = np.where(adjacent[None, :], following, mark_end)
    main = np.array([m[names[0]][2] for m in marks])
    cpu_end = np.where(adjacent[None, :], following, mark_end)
    return StepWindows(tuple(names), begin, end, cpu_end, main, np.r_[False, adjacent[:-1]])


def step_marks(events: RankEvents) -> dict[str, tuple[int, int, int]]:
    """Mark name -> (begin, end, thread); marks may be annotations or, in old files, ops."""
    is_mark = by_category(events.table.events["name"], lambda n: STEP_MARK.match(n) is not None, bool)
    host = is_mark & events.is_kind(EventKind.ANNOTATION, EventKind.CPU_OP) & (events.thread >= 0)
    index = np.flatnonzero(host)
    return {str(events.name[i]): (int(events.start_ns[i]), int(events.end_ns[i]), int(events.thread[i])) for i in index}


def _one_window(ranks: list[RankEvents]) -> StepWindows:
    """No marks: the whole trace is one window."""
    begin, end, main = [], [], []
    for events in ranks:
        host = events.thread >= 0
        scope = host if host.any() else np.ones(len(events.start_ns), dtype=bool)
        begin.append([int(events.start_ns[scope].min())])
        end.append([int(events.end_ns[scope].max())])
        # Most events outside of backward: an autograd thread may have more events than the main one.
        outside = scope & (events.phase != BACKWARD)
        threads, counts = np.unique(events.thread[outside if outside.any() else scope], return_counts=True)
        main.append(int(threads[counts.argmax()]))
    return StepWindows((WINDOW,), np.array(begin), np.array(end) + 1, np.array(end), np.array(main), np.zeros(1, bool))
