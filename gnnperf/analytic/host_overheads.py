"""Host nodes and edges: mean own time per segment and op, T4 per runtime call (Lin et al. 2022, section 3.2), and lags.

Exits of collectives are like host nodes. An edge has a constant delay per lag class and kind of device.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.core import InputError, Segment


def overhead_keys(nodes: pd.DataFrame) -> pd.Series:
    """[n] what a node's overhead depends on beside its segment: the runtime call (T4), else the op."""
    ops = nodes["op_name"].astype(object)
    calls = nodes["event_name"].astype(object)
    return calls.where((nodes["segment"] == Segment.T4).to_numpy() & calls.notna(), ops)


def host_us(nodes: pd.DataFrame, constants: AnalyticConstants, host_speed: float) -> np.ndarray:
    """[n] us of host nodes: their overhead divided by `host_speed`, the host's relative single-thread speed."""
    return overhead_us(nodes, constants) / host_speed


def overhead_us(nodes: pd.DataFrame, constants: AnalyticConstants) -> np.ndarray:
    """The constant of (segment, op or call), else of the segment.

    Args:
        nodes: [n] host or comm nodes (schema.NODE_COLUMNS).
        constants: the overheads.

    Returns:
        [n] us; NaN for segments without a constant (peer_wait).
    """
    segment_code, segment_names = pd.factorize(nodes["segment"].astype(object), use_na_sentinel=True)
    op_code, ops = pd.factorize(overhead_keys(nodes), use_na_sentinel=True)
    pair = (segment_code + 1) * (len(ops) + 1) + op_code + 1  # [n] one number per (segment, op)
    pair_code, distinct = pd.factorize(pair)
    table = np.array([_lookup(int(p), segment_names, ops, constants) for p in distinct])  # [num_pairs]
    return table[pair_code] if len(pair_code) else np.empty(0)


def _lookup(pair: int, segments: pd.Index, ops: pd.Index, constants: AnalyticConstants) -> float:
    segment_at, op_at = divmod(pair, len(ops) + 1)
    if segment_at == 0:
        return np.nan
    segment = str(segments[segment_at - 1])
    back_off = constants.segment_us.get(segment, np.nan)
    return constants.host_overhead_us.get((segment, str(ops[op_at - 1])), back_off) if op_at else back_off


def lag_us(classes: pd.Series, device_kind: str, constants: AnalyticConstants) -> np.ndarray:
    """Delay along each edge [num_edges] us; 0 where the edge has no class.

    Raises:
        InputError: a class without a constant.
    """
    table = constants.lag_us[device_kind]
    code, names = pd.factorize(classes.astype(object), use_na_sentinel=True)
    missing = [str(n) for n in names if n not in table]
    if missing:
        raise InputError(f"lag class {missing[0]!r} has no constant", where="graph edges", allowed=", ".join(table))
    values = np.array([0.0, *(table[str(n)] for n in names)])
    return values[code + 1]
