"""Slices on tracks: whole nanoseconds, and no overlap on a track, as the trace-event format asks."""

from __future__ import annotations

import heapq

import numpy as np
import pandas as pd

from gnnperf.predict import StepPrediction
from gnnperf.report.slices import measured_slices, predicted_slices

PREDICTED, MEASURED = "predicted", "measured"
FIRST_RANK_PID = 1  # process number of rank 0


def tracks(answer: StepPrediction) -> pd.DataFrame:
    """Slices of both kinds with whole nanoseconds, process (pid), track (tid) and the track's name."""
    predicted = predicted_slices(answer).assign(kind=PREDICTED)
    slices = pd.concat([predicted, measured_slices(answer).assign(kind=MEASURED)], ignore_index=True)
    slices["start_ns"] = np.rint(slices["start_us"] * 1000.0).astype(np.int64)
    slices["end_ns"] = np.maximum(np.rint(slices["end_us"] * 1000.0).astype(np.int64), slices["start_ns"])
    slices["row"] = _rows_without_overlap(slices)
    slices["pid"] = slices["rank"].astype(np.int64) + FIRST_RANK_PID
    more = slices["row"].map(lambda row: f", overlapping {row}" if row else "")
    slices["track"] = slices["lane"].astype(str) + " " + slices["kind"] + more
    # Numbered over all ranks: some readers take a tid for the same thread in every process. PREDICTED sorts last.
    keys = ["pid", "lane", "kind", "row"]
    slices = slices.sort_values(keys, ascending=[True, True, False, True], kind="stable").reset_index(drop=True)
    slices["tid"] = slices.groupby(keys, sort=False).ngroup() + 1
    return slices


def _rows_without_overlap(slices: pd.DataFrame) -> np.ndarray:
    """[num_slices] row within the lane: 0, or more where slices of a lane overlap (clocks, concurrent kernels)."""
    row = np.zeros(len(slices), dtype=np.int64)
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    for group in slices.groupby(["rank", "lane", "kind"], sort=False).indices.values():
        positions = np.asarray(group)  # [num_in_lane]
        free_at, others = np.iinfo(np.int64).min, list[tuple[int, int]]()  # row 0; heap of (free at, row) from 1 on
        for position in positions[np.lexsort((end[positions], start[positions]))]:
            if free_at <= start[position]:
                free_at = int(end[position])
            else:
                row[position] = _other_row(others, int(start[position]), int(end[position]))
    return row


def _other_row(others: list[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """Take the row that has been free for longest, or open one."""
    row = others[0][1] if others and others[0][0] <= start_ns else len(others) + 1
    replace_or_push = heapq.heapreplace if row <= len(others) else heapq.heappush
    replace_or_push(others, (end_ns, row))
    return row
