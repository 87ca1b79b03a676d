"""Tie device work and runtime calls to the CPU op they belong to, and backward ops to their forward op."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import DEVICE_KINDS, EventKind, Link
from gnnperf.trace.assembly import Assembled
from gnnperf.trace.columns import categorical
from gnnperf.trace.enclosing import enclosing_ops, launch_calls

LINKS = tuple(Link)
MIN_ENCLOSED_SHARE = 0.9  # of launches that lie inside the op an id names, for the ids to be believed


@dataclass(frozen=True)
class Links:
    """Links of one rank, [num_events] each.

    Attributes:
        op_event: innermost enclosing CPU op; of a CPU op: its parent; -1 none.
        launch_event: runtime call that launched device work; -1 none.
        link: code of schema.Link in LINKS, -1 on host events.
        method: how device work was tied in this file.
    """

    op_event: np.ndarray
    launch_event: np.ndarray
    link: np.ndarray
    method: Link


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
    calls = _first_calls(table)  # one call per correlation
    result = np.full(len(correlation), -1, dtype=np.int64)
    if not len(calls) or not len(device):
        return result
    ids = correlation[calls]
    at = np.minimum(np.searchsorted(ids, correlation[device]), len(ids) - 1)
    result[device] = np.where(ids[at] == correlation[device], calls[at], -1)
    return result


def _first_calls(table: Assembled) -> np.ndarray:
    """Runtime rows sorted by correlation, one per correlation: a launching call before any other of the same id."""
    correlation = table.columns["correlation"]
    calls = np.flatnonzero(table.is_kind(EventKind.RUNTIME) & (correlation >= 0))
    calls = calls[np.lexsort((calls, ~launch_calls(table)[calls], correlation[calls]))]
    return calls[np.unique(correlation[calls], return_index=True)[1]]


def ops_by_id(table: Assembled) -> np.ndarray:
    """[num_events] CPU op whose "External id" a device event states; -1 none."""
    external = table.columns["external_id"]
    ops = np.flatnonzero(table.is_kind(EventKind.CPU_OP) & (external > 0))
    result = np.full(len(external), -1, dtype=np.int64)
    if not len(ops):
        return result
    ids, first = np.unique(external[ops], return_index=True)
    device = np.flatnonzero(table.is_kind(*DEVICE_KINDS) & (external > 0))
    at = np.minimum(np.searchsorted(ids, external[device]), len(ids) - 1)
    result[device] = np.where(ids[at] == external[device], ops[first[at]], -1)
    return result


def repeated_ids(table: Assembled) -> list[str]:
    """Sentences about ids that name two things; no profiler writes such, and work may be tied to the wrong one."""
    launches = table.is_kind(EventKind.RUNTIME) & launch_calls(table)
    named = {
        "launches repeat the correlation id": table.columns["correlation"][launches],
        "CPU ops repeat the id": table.columns["external_id"][table.is_kind(EventKind.CPU_OP)],
    }
    counts = {what: len(ids[ids > 0]) - len(np.unique(ids[ids > 0])) for what, ids in named.items()}
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


def link_names(codes: np.ndarray) -> object:
    """Link codes [num_events] as a categorical."""
    return categorical(codes, [str(x) for x in LINKS])


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
