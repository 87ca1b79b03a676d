"""Every distinct op call of a node table once: what is requested of its shapes holds for all nodes that run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.generate import Argument, parse, text
from gnnperf.whatif.recost import Cost

KEYS = ["op_name", "phase", "input_dims", "dtype", "family", "flops", "bytes", "num_siblings"]


@dataclass(frozen=True)
class DistinctCall:
    """One op call, and how many nodes run it.

    Attributes:
        name, phase: of the op; "" unknown.
        arguments: its shapes.
        dtype: of its largest input; None unknown.
        family: OpFamily.
        recorded: FLOPs and bytes of a node.
        num_siblings: nodes that share a call's cost.
        count: nodes with this call.
    """

    name: str
    phase: str
    arguments: tuple[Argument, ...]
    dtype: str | None
    family: str
    recorded: Cost
    num_siblings: int
    count: int


@dataclass(frozen=True)
class Changed:
    """A node table with other shapes and costs.

    Attributes:
        nodes: the table.
        grown: [num_nodes] bool, the shapes are others.
        growth: [num_nodes] elements of the largest input, new / old; 1 where nothing changed.
    """

    nodes: pd.DataFrame
    grown: np.ndarray
    growth: np.ndarray


Answer = Callable[[DistinctCall], tuple[tuple[Argument, ...], Cost, float] | None]  # shapes, cost, growth


def change_calls(nodes: pd.DataFrame, answer: Answer) -> Changed:
    """Ask `answer` once per distinct call with shapes; None: it stays as it is."""
    keyed = nodes[KEYS].astype(object)
    group = keyed.assign(num_siblings=nodes["num_siblings"]).groupby(KEYS, sort=False, dropna=False).ngroup().to_numpy()
    _, first = np.unique(group, return_index=True)  # a row of each distinct call, by its number
    counts = np.bincount(group)
    rows = keyed.iloc[first]
    dims, flops, moved = (rows[column].to_numpy().copy() for column in ("input_dims", "flops", "bytes"))
    grown, growth = np.zeros(len(rows), bool), np.ones(len(rows))
    for number, row in enumerate(rows.itertuples(index=False, name=None)):
        values = dict(zip(KEYS, row, strict=True))
        result = answer(_call(values, int(counts[number]))) if isinstance(values["input_dims"], str) else None
        if result is not None:
            dims[number], grown[number], growth[number] = text(result[0]), True, result[2]
            flops[number], moved[number] = result[1].flops, result[1].bytes
    table = nodes.assign(
        input_dims=pd.Categorical(dims[group]), flops=flops[group].astype(float), bytes=moved[group].astype(float)
    )
    return Changed(table, grown[group], growth[group])


def _call(row: dict[str, object], count: int) -> DistinctCall:
    def sentences(column: str) -> str | None:
        return row[column] if isinstance(row[column], str) else None  # type: ignore[return-value]

    cost = Cost(float(str(row["flops"])), float(str(row["bytes"])))
    return DistinctCall(
        sentences("op_name") or "",
        sentences("phase") or "",
        parse(str(row["input_dims"])),
        sentences("dtype"),
        sentences("family") or "",
        cost,
        int(str(row["num_siblings"])),
        count,
    )
