"""The critical path in the order of time: stretches of one op on one rank, or of one phase; short ones together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.report.summary import UNNAMED

OPS = ("rank", "node_type", "op_name", "phase", "source")  # what is the same in a stretch of ops
PHASES = ("rank", "phase")


def path_nodes(nodes: pd.DataFrame, document: Mapping[str, Any]) -> pd.DataFrame:
    """The nodes that hold the step back, in the order of time: `nodes_table` rows with `begin_us` and `op_name`.

    `begin_us` counts from where the step time begins: a period's is where the step before completed.
    """
    path = nodes[(nodes["critical_us"] > 0).to_numpy()].sort_values("start_us", kind="stable")
    opens_us = float(document["step_makespan_us"]) - float(document["step_time_us"])
    names = path["op_name"].fillna(path["event_name"]).fillna(UNNAMED)
    begin_us = np.maximum(path["start_us"] - opens_us, 0.0)
    return path.assign(begin_us=begin_us, op_name=names).reset_index(drop=True)


def op_stretches(path: pd.DataFrame) -> pd.DataFrame:
    """Columns OPS, begin_us, critical_us, num_nodes: neighbors on the path that are the same op."""
    return _stretches(path, OPS)


def phase_stretches(path: pd.DataFrame) -> pd.DataFrame:
    """Columns PHASES, begin_us, critical_us, num_nodes, op_name, op_us: neighbors on one rank in one phase.

    `op_name` is the op that takes most of a stretch, `op_us`. A transfer belongs to the rank that the path comes from.
    """
    rank = path["rank"].where(path["rank"] >= 0).ffill().fillna(-1).astype(np.int64)
    path = path.assign(rank=rank)
    result = _stretches(path, PHASES)
    by_op = path.assign(stretch=_number(path, PHASES)).groupby(["stretch", "op_name"])["critical_us"].sum()
    most = by_op.reset_index().sort_values("critical_us", kind="stable").drop_duplicates("stretch", keep="last")
    most = most.set_index("stretch").sort_index()
    return result.assign(op_name=most["op_name"].to_numpy(), op_us=most["critical_us"].to_numpy())


def _number(path: pd.DataFrame, same: Sequence[str]) -> pd.Series:
    """[num_on_path] which stretch a node belongs to, from 1."""
    words = path[list(same)].astype(object)
    words = words.where(words.notna(), "")
    return (words != words.shift()).any(axis=1).cumsum()


def _stretches(path: pd.DataFrame, same: Sequence[str]) -> pd.DataFrame:
    groups = path.assign(stretch=_number(path, same)).groupby("stretch", sort=True)
    result = groups[[*same, "begin_us"]].first()
    result["critical_us"], result["num_nodes"] = groups["critical_us"].sum(), groups.size()
    return result.reset_index(drop=True)


def longest_in_order(result: pd.DataFrame, num_long: int) -> pd.DataFrame:
    """The longest stretches, in the order of time; what lies between them as one row each.

    `num_stretches` says how many a row holds, `is_long` whether it is one of the longest.
    """
    long = result["critical_us"].rank(method="first", ascending=False) <= num_long
    number = (long | long.shift(fill_value=True)).cumsum().to_numpy()
    groups = result.assign(is_long=long).groupby(number, sort=True)
    given = groups.first()
    given["critical_us"], given["num_nodes"] = groups["critical_us"].sum(), groups["num_nodes"].sum()
    given["num_stretches"] = groups.size()
    return given.reset_index(drop=True)
