"""What the analytical answer missed in training, by device, kind of node and family: it is put right by that.

    correction = n / (n + PRIOR_OPS) x mean over the n ops of the group of (median of log(measured / analytical))

An op that training lacks is one more op of its family. So ops are what is counted, however many nodes each has, and a
family of few ops is hardly believed. A family that training lacks has no correction, nor has a kind of node whose
corrections did not help on the validation runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core.schema.ranges import LogRatio
from gnnperf.gnn.data.categories import texts_of
from gnnperf.gnn.data.occurrences import node_kinds

PRIOR_OPS = 3.0
SEPARATOR = " | "


@dataclass(frozen=True)
class Corrections:
    """Attributes: log: device, kind and family -> log of what the analytical answer is multiplied by."""

    log: Mapping[str, LogRatio]

    def of(self, nodes: pd.DataFrame, device: str) -> np.ndarray:
        """[num_nodes] logs; 0 where training tells nothing."""
        return self._at(_groups(nodes, device))

    def _at(self, groups: np.ndarray) -> np.ndarray:
        names, place = np.unique(groups.astype(str), return_inverse=True)
        values = np.array([self.log.get(str(name), 0.0) for name in names])  # [num_groups]
        found: np.ndarray = values[place]
        return found


@dataclass(frozen=True)
class Missed:
    """Nodes of one step.

    Attributes:
        device: that it ran on.
        nodes: node table.
        log: [num_nodes] log(measured / analytical), of ops alone; NaN where one of the two is not there.
    """

    device: str
    nodes: pd.DataFrame
    log: np.ndarray


def fit_corrections(train: Sequence[Missed], val: Sequence[Missed]) -> Corrections:
    """From training steps; validation steps say which kinds of node they help."""
    every = _table(train)
    by_op = every.groupby(["group", "op"], sort=True)["log"].median()
    groups = by_op.groupby(level="group", sort=True)
    count, mean = groups.size(), groups.mean()
    found = Corrections(
        {str(g): float(n / (n + PRIOR_OPS) * m) for g, n, m in zip(count.index, count, mean, strict=True)}
    )
    judged = _table(val)
    better = judged["log"].abs() - (judged["log"] - found._at(judged["group"].to_numpy())).abs()
    helps = better.groupby(judged["kind"]).mean()
    kept = {str(kind) for kind, gain in helps.items() if gain > 0}
    return Corrections({group: log for group, log in found.log.items() if group.split(SEPARATOR)[1] in kept})


def _table(steps: Sequence[Missed]) -> pd.DataFrame:
    """Columns group, kind, op, log of all nodes that have both latencies."""
    tables = []
    for step in steps:
        known = np.isfinite(step.log)
        rows = step.nodes[known]
        tables.append(pd.DataFrame({"group": _groups(rows, step.device), "kind": node_kinds(rows),
                                    "op": texts_of(rows["op_name"]), "log": step.log[known]}))  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def _groups(nodes: pd.DataFrame, device: str) -> np.ndarray:
    """[num_nodes] object."""
    family = texts_of(nodes["family"])
    return np.asarray(device + SEPARATOR + node_kinds(nodes) + SEPARATOR + family, dtype=object)
