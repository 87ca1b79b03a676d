"""Copies of recorded calls that get the shapes, FLOPs and bytes of what they are used for now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import pandas as pd

from gnnperf.generate import Argument, text
from gnnperf.whatif.recost import Cost
from gnnperf.whatif.reshard.rewrite import Stretch


class Resize(Protocol):
    """How a call changes that is copied for something else."""

    def arguments(self, name: str, dims: str) -> tuple[Argument, ...]:
        """Its shapes."""
        ...

    def cost(self, name: str, dims: str, new: tuple[Argument, ...], recorded: Cost, dtype: str | None) -> Cost:
        """Its FLOPs and bytes."""
        ...


@dataclass(frozen=True)
class Copy:
    """Recorded nodes that are used once more.

    Attributes:
        nodes: [n] node ids.
        resize: what changes; None nothing.
    """

    nodes: np.ndarray
    resize: Resize | None


@dataclass(frozen=True)
class Change:
    """Nodes [begin, end) of a lane give way to copies."""

    begin: int
    end: int
    copies: tuple[Copy, ...]

    @property
    def stretch(self) -> Stretch:
        """For the rewriting of lanes."""
        sources = [np.zeros(0, dtype=np.int64), *(copy.nodes for copy in self.copies)]
        return Stretch(self.begin, self.end, np.concatenate(sources))


def resized(nodes: pd.DataFrame, is_copy: np.ndarray, changes: Sequence[Change]) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes of a rewritten graph with the shapes and costs of their copies; [num_nodes] bool: whose changed."""
    table = nodes[["op_name", "dtype", "input_dims"]].astype(object)
    names, dtypes, dims = (table[column].where(table[column].notna(), None).to_numpy(copy=True) for column in table)
    flops, moved = nodes["flops"].to_numpy(copy=True), nodes["bytes"].to_numpy(copy=True)
    changed, at = np.zeros(len(nodes), dtype=bool), iter(np.flatnonzero(is_copy).tolist())
    for change in sorted(changes, key=lambda c: c.begin):
        for copy in change.copies:
            for node in islice(at, len(copy.nodes)):
                if copy.resize is None or not isinstance(dims[node], str):
                    continue
                old, recorded = dims[node], Cost(flops[node], moved[node])
                new = copy.resize.arguments(str(names[node]), old)
                cost = copy.resize.cost(str(names[node]), old, new, recorded, dtypes[node])
                dims[node], flops[node], moved[node] = text(new), cost.flops, cost.bytes
                changed[node] = dims[node] != old or cost.bytes != recorded.bytes
    return nodes.assign(input_dims=pd.Categorical(dims), flops=flops, bytes=moved), changed
