"""What a rank does with the step: computes, communicates without computing, or neither.

device   |--- gemm ---|- wait -|=== all_reduce ===|        |--- gemm ---|
                                       |-- gemm --|
         |   active   |exposed:|exposed|  active  |  none  |   active   |     the host may work meanwhile
                        wait    transfer

A period of a steady state is looked at through one window as long as the step, in which earlier and later steps run as
well: what begins before the window in one step begins inside it in the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Segment, StepTimeKind
from gnnperf.whatif import length_us, union

PARTS = ("active_us", "transfer_us", "wait_us", "host_us", "idle_us")


def occupancy(nodes: pd.DataFrame, document: Mapping[str, Any]) -> pd.DataFrame:
    """One row per rank; PARTS add up to the step time.

    Returns:
        Columns rank; active_us (a kernel, copy or op runs); transfer_us and wait_us (exposed communication: next to
        which nothing of that runs); host_us (only the host works); idle_us (nothing runs); hidden_us (transfers next to
        which work runs, a part of active_us).
    """
    length = float(document["step_time_us"])
    closes = float(document["step_makespan_us"])
    repeats = document["step_time_kind"] == StepTimeKind.PERIOD
    window = _Window(closes - length, closes, length if repeats else None)
    ends = _ends(nodes)
    groups = nodes[["rank", "node_type", "segment", "transfer"]].groupby("rank")
    rows = []
    for rank in document["traced_ranks"]:
        spans = _spans(groups.get_group(rank), ends) if rank in groups.groups else {}
        rows.append({"rank": rank, **_parts({name: window.of(s) for name, s in spans.items()}, length)})
    return pd.DataFrame(rows, columns=["rank", *PARTS, "hidden_us"])


class _Window:
    """Stretches of time as they are seen between `opens` and `closes`; `period` None: nothing repeats."""

    def __init__(self, opens: float, closes: float, period: float | None) -> None:
        self.opens, self.closes, self.period = opens, closes, period

    def of(self, spans: np.ndarray) -> np.ndarray:
        """[m, 2] without overlaps, clipped; repeated where the step is."""
        spans = union(spans)
        if self.period and len(spans):
            times = max(0, math.ceil((self.opens - float(spans[0, 0])) / self.period))
            spans = np.concatenate([spans + repeat * self.period for repeat in range(times + 1)])
        return union(np.clip(spans, self.opens, self.closes))


def _ends(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes, 2] predicted start and end; what has no latency takes no time, as in the schedule."""
    start = nodes["start_us"].to_numpy()
    return np.column_stack([start, start + np.nan_to_num(nodes["mean_latency_us"].to_numpy())])


def _spans(own: pd.DataFrame, ends: np.ndarray) -> dict[str, np.ndarray]:
    """Kind of time -> [n, 2] when a rank, whose nodes `own` are, spends it, overlaps and all."""
    kind, segment = own["node_type"].to_numpy(dtype=object), own["segment"].to_numpy(dtype=object)
    node, transfer = own.index.to_numpy(), own["transfer"].to_numpy()
    exits = segment == Segment.EXIT
    joins = (transfer >= 0) & ~exits
    arrives, begins = ends[node[joins], 0], ends[transfer[joins], 0]
    return {
        "work": ends[node[(kind == NodeType.COMPUTE) | (kind == NodeType.MEMORY)]],
        "transfer": np.concatenate([ends[transfer[joins]], ends[node[exits]]]),
        "wait": np.column_stack([arrives, begins]),
        "host": ends[node[(kind == NodeType.HOST) & (segment != Segment.PEER_WAIT)]],
    }


def _parts(spans: Mapping[str, np.ndarray], step_us: float) -> dict[str, float]:
    """PARTS: each kind's time outside all that come before it; of a rank without work everything is idle."""
    kinds = [spans.get(kind, np.zeros((0, 2))) for kind in ("work", "transfer", "wait", "host")]
    covered = [length_us(np.concatenate(kinds[: count + 1])) for count in range(len(kinds))]
    isolated = np.diff([0.0, *covered, step_us])
    hidden = covered[0] + length_us(kinds[1]) - covered[1]
    return {**dict(zip(PARTS, isolated.tolist(), strict=True)), "hidden_us": hidden}
