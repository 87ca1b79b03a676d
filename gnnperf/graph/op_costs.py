"""Cost of the ops behind nodes: the formula of the op itself, else of the nearest op around it that has one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.graph.cost import op_cost
from gnnperf.graph.rank_events import RankEvents
from gnnperf.schema import EventKind, OpFamily

_MAX_CLIMB = 8


@dataclass(frozen=True)
class OpCosts:
    """All [n]; NaN, "unknown" and None where nothing is known.

    Attributes:
        event: event id of the op whose formula was used; -1 none.
        flops, bytes: of the whole op call.
        family: OpFamily, str objects.
        dtype: str objects or None.
    """

    event: np.ndarray
    flops: np.ndarray
    bytes: np.ndarray
    family: np.ndarray
    dtype: np.ndarray


def op_costs(events: RankEvents, op: np.ndarray, *, climb: bool) -> OpCosts:
    """Cost of each op [n] (event id or -1); with `climb`, ops without a formula ask the op around them."""
    n = len(op)
    result = OpCosts(
        np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan),
        np.full(n, str(OpFamily.UNKNOWN), dtype=object), np.full(n, None, dtype=object),
    )  # fmt: skip
    current, open_ = op.copy(), op >= 0
    for _ in range(_MAX_CLIMB if climb else 1):
        if not open_.any():
            break
        _fill(events, result, np.flatnonzero(open_), current)
        current = np.where(current >= 0, events.parent[current], -1)
        open_ &= (result.event < 0) & (current >= 0)
        open_[open_] = events.kind[current[open_]] == EventKind.CPU_OP
    return result


def _fill(events: RankEvents, result: OpCosts, rows: np.ndarray, current: np.ndarray) -> None:
    """Evaluate each distinct (name, shapes, types, values) once and spread the answer over its rows."""
    at = current[rows]
    frame = events.table.events
    columns = ("name", "input_dims", "input_types", "input_values")
    codes = np.stack([frame[c].cat.codes.to_numpy()[at] for c in columns])  # [4, num_rows]
    distinct, inverse = np.unique(codes, axis=1, return_inverse=True)
    texts = [frame[c].cat.categories for c in columns]
    answers = [
        op_cost(*(texts[k][code] if code >= 0 else None for k, code in enumerate(row))) for row in distinct.T.tolist()
    ]
    flops = np.array([a.flops for a in answers])[inverse]
    known = ~(np.isnan(flops) & np.isnan(np.array([a.bytes for a in answers])[inverse]))
    named = np.array([a.family != OpFamily.UNKNOWN for a in answers])[inverse]
    take = known | (named & (result.family[rows] == OpFamily.UNKNOWN))
    result.flops[rows[take]] = flops[take]
    result.bytes[rows[take]] = np.array([a.bytes for a in answers])[inverse][take]
    result.family[rows[take]] = np.array([str(a.family) for a in answers], dtype=object)[inverse][take]
    result.dtype[rows[take]] = np.array([a.dtype for a in answers], dtype=object)[inverse][take]
    result.event[rows[known]] = at[known]
