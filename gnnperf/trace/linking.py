"""Tie device work and runtime calls to the CPU op they belong to, and backward ops to their forward op."""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from gnnperf.core import DEVICE_KINDS, EventKind, Link
from gnnperf.trace.assembly import KIND_CODES, Assembled
from gnnperf.trace.columns import innermost

# The innermost CPU op around each host event, also where the clock of runtime calls runs apart from that of ops.
#
# Runtime calls are stamped by the vendor's profiler, ops by PyTorch's. In files of 2023 the two clocks differ by up to
# 15 us, by an amount that wanders within a second:
#
#     op      |---aten::mul---|    |---aten::add---|
#     launch           |===|          |====|             clocks agree
#     launch                 |===|          |====|       calls stamped 6 us late: the second is cut by its op's end
#
# Calls cut by the end of an op give the difference away. Where many are cut, the shift is found, for each stretch of
# launches, that leaves the fewest cut or outside any op; it decides which op a call belongs to. No time is changed.

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
    half_back = -(table.columns["duration_ns"] // 2)  # puts the middle of a call where it begins
    op = _enclosing(table, half_back)[launches]
    end = table.columns["start_ns"] + table.columns["duration_ns"]
    cut = (op >= 0) & (end[launches] > end[op])  # [num_launches] calls that begin inside an op and end after it
    return _enclosing(table, _call_shift(table, launches)) if cut.mean() >= CUT_SHARE else result


def launch_calls(table: Assembled) -> np.ndarray:
    """[num_events] bool: runtime calls that put work on a device, in any spelling of CUDA, HIP and MTIA."""
    is_launch = np.array([_is_launch(text) for text in table.names])
    return is_launch[table.columns["name"].codes] & table.is_kind(EventKind.RUNTIME)


@lru_cache(maxsize=1 << 14)
def _is_launch(name: str) -> bool:
    return re.search("launch|memcpy|memset", name, re.I) is not None


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
    thread, start, duration = (table.columns[n] for n in ("thread", "start_ns", "duration_ns"))
    host = np.flatnonzero(thread >= 0)  # by thread, then start, longer first; runtime calls shifted
    start = (start + np.where(table.is_kind(EventKind.RUNTIME), call_shift_ns, 0))[host]
    order = np.lexsort((-duration[host], start, thread[host]) if call_shift_ns.any() else (thread[host],))
    host, start = host[order], start[order]
    edges = np.flatnonzero(np.diff(table.columns["thread"][host])) + 1
    for rows, begin in zip(np.split(host, edges), np.split(start, edges), strict=True):
        is_op = table.kind[rows] == KIND_CODES[EventKind.CPU_OP]
        enclosing[rows] = np.append(rows, -1)[_covering(is_op, begin, duration[rows])]
    return enclosing


def _covering(is_op: np.ndarray, begin: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """[num_rows] the nearest op before each row of a thread whose end is not before the row's middle; -1 none."""
    middle, end = begin + duration // 2, begin + duration
    earlier = np.maximum.accumulate(np.where(is_op, np.arange(len(begin)), -1))  # last op up to each row
    reached = np.maximum.accumulate(np.where(is_op, end, np.iinfo(np.int64).min))  # by any op up to each row
    may_cover = np.r_[False, reached[:-1] >= middle[1:]][: len(begin)]
    before = np.where(may_cover, np.r_[-1, earlier[:-1]][: len(begin)], -1)
    return innermost(before, lambda outer, inner: end[outer] >= middle[inner])


LINKS = tuple(Link)
MIN_ENCLOSED_SHARE = 0.9  # of launches that lie inside the op an id names, for the ids to be believed


@dataclass(frozen=True)
class Links:
    """Links of one rank, [num_events] each."""

    op_event: np.ndarray  # innermost enclosing CPU op; of a CPU op: its parent; -1 none
    launch_event: np.ndarray  # runtime call that launched device work; -1 none
    link: np.ndarray  # code of schema.Link in LINKS, -1 on host events
    method: Link  # how device work was tied in this file


def link(table: Assembled, *, trust_ids: bool = True) -> Links:
    """Link one rank. `trust_ids=False` hides the file's own ids: the proof that both ways agree."""
    parents = enclosing_ops(table)  # [num_events]
    launch = launch_events(table)  # [num_events]
    device = table.is_kind(*DEVICE_KINDS)
    by_correlation = np.where(launch >= 0, parents[launch], -1)  # [num_events]
    by_id = ops_by_id(table)  # [num_events]
    true_ids = trust_ids and ids_are_true(table, launch, by_id)
    op = np.where(device, by_correlation, parents)
    codes = np.full(len(op), -1, dtype=np.int8)
    codes[device] = LINKS.index(Link.NONE)
    codes[device & (op >= 0)] = LINKS.index(Link.CORRELATION)
    if true_ids:
        named = device & (by_id >= 0)
        op[named] = by_id[named]
        codes[named] = LINKS.index(Link.EXTERNAL_ID)
    codes[device & (op < 0) & before_window(table, launch)] = LINKS.index(Link.BEFORE_WINDOW)
    tied = bool((device & (op >= 0)).any())
    method = Link.EXTERNAL_ID if true_ids else Link.CORRELATION if tied else Link.NONE
    return Links(op, launch, codes, method)


def launch_events(table: Assembled) -> np.ndarray:
    """[num_events] the runtime call with the same correlation, for device work and sync records; -1 none."""
    correlation = table.columns["correlation"]
    device = np.flatnonzero(table.is_kind(*DEVICE_KINDS, EventKind.SYNC) & (correlation >= 0))
    # Runtime rows sorted by correlation, one per correlation: a launching call before any other of the same id.
    calls = np.flatnonzero(table.is_kind(EventKind.RUNTIME) & (correlation >= 0))
    calls = calls[np.lexsort((calls, ~launch_calls(table)[calls], correlation[calls]))]
    calls = calls[np.unique(correlation[calls], return_index=True)[1]]
    result = np.full(len(correlation), -1, dtype=np.int64)
    result[device] = pd.Series(calls, correlation[calls]).reindex(correlation[device], fill_value=-1)
    return result


def ops_by_id(table: Assembled) -> np.ndarray:
    """[num_events] CPU op whose "External id" a device event states; -1 none."""
    external = table.columns["external_id"]
    ops = np.flatnonzero(table.is_kind(EventKind.CPU_OP) & (external > 0))
    ops = ops[np.unique(external[ops], return_index=True)[1]]
    device = np.flatnonzero(table.is_kind(*DEVICE_KINDS) & (external > 0))
    result = np.full(len(external), -1, dtype=np.int64)
    result[device] = pd.Series(ops, external[ops]).reindex(external[device], fill_value=-1)
    return result


def repeated_ids(table: Assembled) -> list[str]:
    """Sentences about ids that name two things; no profiler writes such, and work may be tied to the wrong one."""
    launches = table.is_kind(EventKind.RUNTIME) & launch_calls(table)
    named = {
        "launches repeat the correlation id": table.columns["correlation"][launches],
        "CPU ops repeat the id": table.columns["external_id"][table.is_kind(EventKind.CPU_OP)],
    }
    counts = {what: int(pd.Index(ids[ids > 0]).duplicated().sum()) for what, ids in named.items()}
    return [f"{n} {what} of another: device work may be tied to the wrong op" for what, n in counts.items() if n]


def ids_are_true(table: Assembled, launch: np.ndarray, by_id: np.ndarray) -> bool:
    """Whether device events' ids name the CPU op: the op named must cover the launch.

    Between 2021 and torch 2.3 the id is the profiler's correlation id again, which names random ops.
    """
    named = np.flatnonzero(by_id >= 0)
    both = named[launch[named] >= 0]
    if not len(both):
        repeated = table.columns["correlation"][named] == table.columns["external_id"][named]
        return len(named) > 0 and not bool(repeated.any())
    start, thread = table.columns["start_ns"], table.columns["thread"]
    op, call = by_id[both], launch[both]
    inside = (start[op] <= start[call]) & (start[call] <= start[op] + table.columns["duration_ns"][op])
    return bool((inside & (thread[op] == thread[call])).mean() >= MIN_ENCLOSED_SHARE)


def before_window(table: Assembled, launch: np.ndarray) -> np.ndarray:
    """[num_events] device work launched before the profiler saw its first runtime call."""
    calls = np.flatnonzero(table.is_kind(EventKind.RUNTIME))
    if not len(calls):
        return np.zeros(len(launch), dtype=bool)
    correlation = table.columns["correlation"]
    known = correlation[calls][correlation[calls] > 0]
    early = table.columns["start_ns"] < table.columns["start_ns"][calls[0]]
    low = (correlation > 0) & (correlation < (known.min() if len(known) else 0))
    return (launch < 0) & table.is_kind(*DEVICE_KINDS) & (early | low)


def forward_events(table: Assembled) -> np.ndarray:
    """[num_events] forward op of each backward op; by the file's flows, else by sequence number."""
    result = _forward_by_sequence(table)
    for backward, forward in _flow_ends(table):
        result[backward] = forward
    return result


def _forward_by_sequence(table: Assembled) -> np.ndarray:
    """Among the forward ops of a sequence number the one that starts last launches the backward op (as Kineto does)."""
    sequence, forward_thread = table.columns["sequence"], table.side["forward_thread"]
    result = np.full(len(sequence), -1, dtype=np.int64)
    has = table.is_kind(EventKind.CPU_OP) & (sequence >= 0) & (sequence < 2**31)
    backward = np.flatnonzero(has & (forward_thread > 0))
    forward = np.flatnonzero(has & (forward_thread <= 0))
    if not len(backward) or not len(forward):
        return result
    key = (sequence[forward] << 32) | forward
    key.sort()
    at = np.searchsorted(key, (sequence[backward] << 32) | backward) - 1
    results = key[np.maximum(at, 0)]
    good = (at >= 0) & (results >> 32 == sequence[backward])
    result[backward[good]] = (results & (2**32 - 1))[good]
    return result


def _flow_ends(table: Assembled) -> list[tuple[int, int]]:
    """(backward row, forward row) of each arrow: the ends name a thread and the start of an op that has a sequence."""
    if not table.flows:
        return []
    rows = np.flatnonzero(table.is_kind(EventKind.CPU_OP) & (table.columns["sequence"] >= 0))
    threads, starts = table.columns["thread"][rows].tolist(), table.columns["start_ns"][rows].tolist()
    at = dict(zip(zip(threads, starts, strict=True), rows.tolist(), strict=True))
    ends: dict[object, dict[str, int]] = {}
    for phase, number, thread, start in table.flows:
        if (thread, start) in at:
            ends.setdefault(number, {})[phase] = at[thread, start]
    return [(e["f"], e["s"]) for e in ends.values() if "f" in e and "s" in e]
