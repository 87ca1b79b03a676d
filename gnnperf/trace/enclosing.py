"""The innermost CPU op around each host event, also where the clock of runtime calls runs apart from that of ops.

Runtime calls are stamped by the vendor's profiler, ops by PyTorch's. In files of 2023 the two clocks differ by up to
15 us, by an amount that wanders within a second:

    op      |---aten::mul---|    |---aten::add---|
    launch           |===|          |====|             clocks agree
    launch                 |===|          |====|       calls stamped 6 us late: the second is cut by its op's end

Calls cut by the end of an op give the difference away. Where many are cut, the shift is found, for each stretch of
launches, that leaves the fewest cut or outside any op; it decides which op a call belongs to. No time is changed.
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import EventKind
from gnnperf.trace.assembly import Assembled
from gnnperf.trace.extract import KIND_CODES

CUT_SHARE = 0.01  # of launches cut by the end of an op, above which the clocks are taken to differ
SHIFTS_NS = 1000 * np.array([0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -8, 8, -10, 10, -12, 12, -15, 15])
STRETCH = 33  # launches that share a shift
COST_OUTSIDE, COST_CUT = 2.0, 1.0
COST_PER_US = 0.02 * STRETCH / 10  # of the shift itself: the smallest that explains the stretch


def enclosing_ops(table: Assembled) -> np.ndarray:
    """[num_events] innermost CPU op around each host event on its thread; -1 none, and for device work."""
    result = _enclosing(table, np.zeros(1, dtype=np.int64))
    launches = np.flatnonzero(launch_calls(table))
    if len(launches) == 0 or (_costs(table, result, launches, 0) > 0).mean() < CUT_SHARE:
        return result
    return _enclosing(table, _call_shift(table, launches)) if clocks_differ(table) else result


def clocks_differ(table: Assembled) -> bool:
    """Whether the ends of ops cut enough launches to say that calls and ops were stamped by clocks that differ."""
    launches = np.flatnonzero(launch_calls(table))
    return len(launches) > 0 and bool(_cut(table, launches).mean() >= CUT_SHARE)


def _cut(table: Assembled, launches: np.ndarray) -> np.ndarray:
    """[num_launches] bool: calls that begin inside an op and end after it."""
    half_back = -(table.columns["duration_ns"] // 2)  # puts the middle of a call where it begins
    op = _enclosing(table, half_back)[launches]
    end = table.columns["start_ns"] + table.columns["duration_ns"]
    return (op >= 0) & (end[launches] > end[op])


def launch_calls(table: Assembled) -> np.ndarray:
    """[num_events] bool: runtime calls that put work on a device."""
    is_launch = np.array([_is_launch(text) for text in table.names])
    return is_launch[table.columns["name"].codes] & table.is_kind(EventKind.RUNTIME)


LAUNCH_WORDS = ("launch", "memcpy", "memset")


def _is_launch(name: str) -> bool:
    """Launches, copies and memsets of CUDA, HIP and MTIA, in any of their spellings."""
    lowered = name.lower()
    return any(word in lowered for word in LAUNCH_WORDS)


def _call_shift(table: Assembled, launches: np.ndarray) -> np.ndarray:
    """[num_events] ns to add to the start of runtime calls, constant over a stretch of launches; 0 on other events."""
    window = np.ones(min(STRETCH, len(launches)))
    costs = np.empty((len(SHIFTS_NS), len(launches)))  # [num_shifts, num_launches]
    for i, shift in enumerate(SHIFTS_NS.tolist()):
        result = _enclosing(table, np.full(1, shift))
        costs[i] = np.convolve(_costs(table, result, launches, shift), window, mode="same")
        costs[i] += COST_PER_US * abs(shift) / 1000
    best = SHIFTS_NS[costs.argmin(axis=0)]  # [num_launches]
    calls = np.flatnonzero(table.is_kind(EventKind.RUNTIME))
    nearest = np.minimum(np.searchsorted(launches, calls), len(launches) - 1)  # rows are in order of time
    shift_ns = np.zeros(len(table), dtype=np.int64)
    shift_ns[calls] = best[nearest]
    return shift_ns


def _costs(table: Assembled, result: np.ndarray, launches: np.ndarray, shift: int) -> np.ndarray:
    """[num_launches] how badly each launch fits into the op found for it."""
    end = table.columns["start_ns"] + table.columns["duration_ns"]
    op = result[launches]
    cut = end[launches] + shift > end[op]
    return np.where(op < 0, COST_OUTSIDE, np.where(cut, COST_CUT, 0.0))


def _enclosing(table: Assembled, call_shift_ns: np.ndarray) -> np.ndarray:
    """[num_events] the latest op before each event, on its thread, that covers the event's middle; -1 none.

    Whole microseconds and two clocks leave ends that do not nest exactly, hence the middle.
    """
    enclosing = np.full(len(table), -1, dtype=np.int64)
    host, start = _by_thread(table, call_shift_ns)
    edges = np.flatnonzero(np.diff(table.columns["thread"][host])) + 1
    for rows, begin in zip(np.split(host, edges), np.split(start, edges), strict=True):
        duration = table.columns["duration_ns"][rows]
        is_op = table.kind[rows] == KIND_CODES[EventKind.CPU_OP]
        before = np.cumsum(is_op) - is_op - 1  # [num_rows] last op before the row; -1 none
        result = _covering(before, is_op, begin + duration // 2, (begin + duration)[is_op])
        enclosing[rows] = np.append(rows[is_op], -1)[result]
    return enclosing


def _by_thread(table: Assembled, call_shift_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Host rows by thread, then start, longer first; and the start of each, runtime calls shifted."""
    thread, start, duration = (table.columns[n] for n in ("thread", "start_ns", "duration_ns"))
    host = np.flatnonzero(thread >= 0)
    if not call_shift_ns.any():
        host = host[np.argsort(thread[host], kind="stable")]
        return host, start[host]
    shifted = (start + np.where(table.is_kind(EventKind.RUNTIME), call_shift_ns, 0))[host]
    order = np.lexsort((-duration[host], shifted, thread[host]))
    return host[order], shifted[order]


def _covering(before: np.ndarray, is_op: np.ndarray, middle: np.ndarray, op_end: np.ndarray) -> np.ndarray:
    """[num_rows] the nearest op at or before `before` whose end is not before the row's middle; -1 none.

    Pointer jumping: an op that ends too early hands over to its own candidate. All ops between the two end before
    that op's middle, hence too early as well. The distance doubles each round.
    """
    end = np.append(op_end, np.iinfo(np.int64).max)  # the op "-1" covers everything
    result = before.copy()
    jump = np.append(result[is_op], -1)  # [num_ops + 1] candidate of each op
    op_number = np.cumsum(is_op) - 1
    active = np.flatnonzero(end[result] < middle)
    while len(active):
        result[active] = jump[result[active]]
        ops = active[is_op[active]]
        jump[op_number[ops]] = result[ops]
        active = active[end[result[active]] < middle[active]]
    return result
