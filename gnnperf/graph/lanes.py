"""Lanes: what runs one after the other. A host thread or a device stream of one rank.

Within a lane, node_id order is the order of execution.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class LaneEnds:
    """First and last node of every lane, and the last node of every rank's main thread."""

    first: np.ndarray  # [num_lanes] node ids
    last: np.ndarray  # [num_lanes]
    last_main: np.ndarray  # [num_ranks] node ids


def lane_keys(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] int64 lane number; -1 for nodes without a lane (collectives, hardware)."""
    thread, stream = nodes["thread"].to_numpy(), nodes["stream"].to_numpy()
    rank, device = nodes["rank"].to_numpy().astype(np.int64), nodes["device"].to_numpy().astype(np.int64)
    on_host = thread >= 0
    inner = np.where(on_host, thread * 2, ((device + 1) * 4096 + stream) * 2 + 1)
    return np.where(on_host | (stream >= 0), rank * (1 << 40) + inner, -1)


def lane_ends(nodes: pd.DataFrame) -> LaneEnds:
    """First and last node of each lane."""
    key = lane_keys(nodes)
    index = np.flatnonzero(key >= 0)
    order = index[np.argsort(key[index], kind="stable")]  # by lane, then node_id
    sorted_key = key[order]
    starts = np.flatnonzero(np.r_[True, sorted_key[1:] != sorted_key[:-1]]) if len(order) else np.zeros(0, np.int64)
    stops = np.r_[starts[1:], len(order)] - 1 if len(order) else starts
    first, last = order[starts], order[stops]
    main = nodes["thread"].to_numpy()[last] == 0
    return LaneEnds(first, last, last[main])


def consecutive(lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(src, dst) of neighbors within each lane, given lane numbers [n] in node order; -1 is no lane."""
    index = np.flatnonzero(lane >= 0)
    order = index[np.argsort(lane[index], kind="stable")]
    same = lane[order[1:]] == lane[order[:-1]]
    return order[:-1][same], order[1:][same]
