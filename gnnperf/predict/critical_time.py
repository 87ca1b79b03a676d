"""The step time, divided among the nodes of the critical path.

path     |--T2--|--T4 launch--·
                |------- gemm --------|-- all_reduce --|-T1-|
divided  |  T2  | T4 |     gemm       |   all_reduce   | T1 |       a launch holds its kernel back by the lag only
                     ^ makespan - step time (a period begins where the previous step completed)
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import Schedule, timed_edges


def critical_chain(graph: ExecutionGraph, schedule: Schedule) -> np.ndarray:
    """[num_on_path] node ids of the critical path, in the order in which time passes along it."""
    position = np.empty(graph.num_nodes, dtype=np.int64)  # [num_nodes] topological, decides between equal starts
    position[timed_edges(graph).order] = np.arange(graph.num_nodes)
    on_path = np.flatnonzero(schedule.on_critical_path)
    return on_path[np.lexsort((position[on_path], schedule.start_us[on_path]))]


def critical_time_us(graph: ExecutionGraph, schedule: Schedule, step_time_us: float) -> np.ndarray:
    """[num_nodes] time the path spends at each node, inside the last `step_time_us` before the step's completion.

    A node's time lasts until the path goes on, so a delay after it (launch latency, stream gap) is part of it. The sum
    is `step_time_us`, less whatever passes before the path starts (replay: the rank began later than the first one).
    """
    chain = critical_chain(graph, schedule)
    begin = schedule.start_us[chain]  # [num_on_path]
    end = np.append(begin[1:], schedule.makespan_us)[: len(chain)]
    opens = schedule.makespan_us - step_time_us
    share = np.zeros(graph.num_nodes)
    share[chain] = np.maximum(end, opens) - np.maximum(begin, opens)
    return share


def delay_us(graph: ExecutionGraph, schedule: Schedule, step_time_us: float) -> float:
    """Part of the critical time in which no node of the path runs: launch latencies and gaps on streams."""
    chain = critical_chain(graph, schedule)
    opens = schedule.makespan_us - step_time_us
    ends, begins = schedule.end_us[chain][:-1], schedule.start_us[chain][1:]  # [num_on_path - 1]
    return float(np.maximum(np.maximum(begins, opens) - np.maximum(ends, opens), 0.0).sum())


def shares(critical_us: np.ndarray, labels: pd.Series | np.ndarray) -> dict[str, float]:
    """Label -> share of the critical time, largest first; labels without any critical time are listed with 0."""
    total = critical_us.sum()
    by_label = pd.Series(critical_us).groupby(np.asarray(labels, dtype=object).astype(str)).sum()
    ordered = by_label.sort_values(ascending=False, kind="stable")
    return {str(name): float(value / total) if total > 0 else 0.0 for name, value in ordered.items()}
