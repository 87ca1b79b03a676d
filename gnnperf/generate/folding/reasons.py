"""Why two ranks are no class: the first thing that tells them apart, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.generate.folding.structure import seen
from gnnperf.graph import ExecutionGraph


def why_apart(graph: ExecutionGraph, alone: np.ndarray, machine: np.ndarray, position: int, other: int) -> str:
    """What tells the rank at `position` from the one at `other`.

    Args:
        graph: both are in it.
        alone: [num_ranks] class by own nodes and edges.
        machine: [num_ranks] machine whose ranks stay together.
        position: of the one among `graph.ranks`.
        other: of the other.
    """
    rank, base = graph.ranks[position], graph.ranks[other]
    if alone[position] != alone[other]:
        return _difference(_own(graph, rank), _own(graph, base), base)
    if machine[position] == machine[other]:
        return f"does the same as rank {base}, but they share the cores of one machine"
    return f"does the same as rank {base}, but meets other ranks"


def _own(graph: ExecutionGraph, rank: int) -> pd.DataFrame:
    return seen(graph.nodes[(graph.nodes["rank"] == rank).to_numpy()]).reset_index(drop=True)


def _difference(mine: pd.DataFrame, others: pd.DataFrame, base: int) -> str:
    """The first node that differs, and in what; else how many there are, else that edges differ."""
    both = min(len(mine), len(others))
    for column in mine.columns:
        apart = _texts(mine[column])[:both] != _texts(others[column])[:both]
        mine, others, both = _until(mine, apart), _until(others, apart), min(both, _first(apart) + 1)
    last = [str(frame["op_name"].iloc[both - 1]) if both else "" for frame in (mine, others)]
    for column in mine.columns:
        a, b = _texts(mine[column])[both - 1 : both], _texts(others[column])[both - 1 : both]
        if (a != b).any():
            return f"node {both - 1} ({last[0]}) has {column} {a[0] or 'unknown'}, rank {base} has {b[0] or 'unknown'}"
    if len(mine) != len(others):
        return f"has {len(mine)} nodes, rank {base} has {len(others)}"
    return f"has the nodes of rank {base}, but other edges among them"


def _until(frame: pd.DataFrame, apart: np.ndarray) -> pd.DataFrame:
    return frame.iloc[: _first(apart) + 1] if apart.any() else frame


def _first(apart: np.ndarray) -> int:
    return int(np.flatnonzero(apart)[0]) if apart.any() else len(apart)


def _texts(column: pd.Series) -> np.ndarray:
    return column.astype(object).where(column.notna(), "").astype(str).to_numpy(dtype=object)
