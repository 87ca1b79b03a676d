"""Equal calls that do not depend on each other become one batched call, as models trained side by side share a GPU.

before   [T1|linear]-[T1|linear]-[T1|linear]-[T1|stack]       three times the host, three small kernels
after                            [T1|baddbmm]-[T1|stack]      three times the FLOPs and bytes, the host once

Wang et al. 2021, "Horizontally Fused Training Array" (HFTA).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation, require
from gnnperf.generate import parse, text
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch import listed
from gnnperf.whatif.batched_shapes import batched
from gnnperf.whatif.call_table import call_table
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.independent_calls import independent_groups
from gnnperf.whatif.repeated_models import model_groups
from gnnperf.whatif.surgery import remove

STACKED = "what it costs to bring inputs together and results apart: weights are taken to be stored as one"
BY_SHAPE = ("whether calls need each other's results in a way that shapes do not show: no tensor is followed (no feeds "
            "edges)")  # fmt: skip
LEFT = "whether {} equal calls need each other's results: no tensor is followed (no feeds edges); they stay apart"
TOLD = "whether the {} models share anything: it was told that they do not"
MEMORY = "whether all models fit into memory side by side"
FOUND = "{} calls become {}: {}"


@dataclass(frozen=True)
class FuseHorizontally:
    """Equal, independent calls of a thread become one batched call, where the last of them is.

    Attributes:
        op: name of the op; None all.
        phase: forward, backward, optimizer; None any.
        models: the step runs so many models of one shape one after the other, which share nothing; None: independent
            calls are looked for.
    """

    op: str | None = None
    phase: str | None = None
    models: int | None = None

    def __post_init__(self) -> None:
        """Refuse one model."""
        require(self.models is None or self.models >= 2, "models of a horizontal fusion", self.models, "2 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Fuse; recorded latencies of the fused calls' device work become unknown.

        Raises:
            InputError: no such calls, or none that are known to be independent.
        """
        calls, unit = call_table(graph)
        groups, unknown = self._groups(graph, calls, unit)
        if not groups:
            raise InputError("no equal calls that are known not to need each other" + self._limits(),
                             where=f"graph {graph.name!r}",
                             allowed="feeds edges, calls whose shapes show it, or models=N")  # fmt: skip
        last = np.array([group[-1] for group in groups])
        times = np.ones(int(unit.max()) + 1)
        times[last] = [len(group) for group in groups]
        gone = np.isin(unit, np.concatenate([group[:-1] for group in groups]))
        fused = np.isin(unit, last)
        told = replace(graph, nodes=_batched(graph.nodes, np.where(fused, times[unit], 1.0)))
        edited, came_from = remove(_handed_on(told, unit, groups), gone)
        found = (_found(calls, groups),)
        return Edited(edited, fused[came_from], came_from, (STACKED, *unknown, MEMORY), found=found)

    def _groups(
        self, graph: ExecutionGraph, calls: pd.DataFrame, unit: np.ndarray
    ) -> tuple[list[np.ndarray], tuple[str, ...]]:
        """Units that become one, and what is not known about them."""
        asked = calls.assign(is_free=calls["is_free"] & self._asked(calls))
        if self.models is not None:
            return model_groups(asked, self.models), (TOLD.format(self.models),)
        groups, left = independent_groups(graph, asked, unit)
        return groups, (BY_SHAPE, *([LEFT.format(left)] if left else []))

    def _asked(self, calls: pd.DataFrame) -> np.ndarray:
        """[num_calls] bool."""
        fits = np.ones(len(calls), dtype=bool)
        if self.op is not None:
            fits &= (calls["op_name"] == self.op).to_numpy()
        return fits if self.phase is None else fits & (calls["phase"] == self.phase).to_numpy()

    def _limits(self) -> str:
        limits = (("of", self.op), ("in", self.phase))
        return "".join(f" {word} {value}" for word, value in limits if value is not None)


def _batched(nodes: pd.DataFrame, times: np.ndarray) -> pd.DataFrame:
    """The table with the work of `times` [num_nodes] calls in each node; latencies of device work unknown."""
    names, dims = (nodes[column].astype(object).to_numpy(copy=True) for column in ("op_name", "input_dims"))
    for node in np.flatnonzero((times > 1) & nodes["input_dims"].notna().to_numpy()):
        name, arguments = batched(str(names[node]), parse(str(dims[node])), int(times[node]))
        names[node], dims[node] = name, text(arguments)
    works = (times > 1) & (nodes["node_type"] != NodeType.HOST).to_numpy()
    return nodes.assign(
        op_name=pd.Categorical(names), input_dims=pd.Categorical(dims), flops=nodes["flops"] * times,
        bytes=nodes["bytes"] * times, latency_us=nodes["latency_us"].mask(works),
    )  # fmt: skip


def _handed_on(graph: ExecutionGraph, unit: np.ndarray, groups: list[np.ndarray]) -> ExecutionGraph:
    """The graph in which the fused call feeds whom its parts fed: tensors' edges of the others end at the last one."""
    heir = np.arange(int(unit.max()) + 1)
    for group in groups:
        heir[group] = group[-1]
    number, first = np.unique(unit, return_index=True)
    node_of = np.full(len(heir), -1, dtype=np.int64)
    node_of[number[number >= 0]] = first[number >= 0]
    works = np.flatnonzero((graph.nodes["node_type"] != NodeType.HOST).to_numpy() & (unit >= 0))
    node_of[unit[works]] = works
    edges = graph.edges
    feeds = (edges["relation"] == Relation.FEEDS).to_numpy()
    ends = {}
    for end in ("src", "dst"):
        node = edges[end].to_numpy()
        moved = feeds & (unit[node] >= 0) & (heir[unit[node]] != unit[node])
        ends[end] = np.where(moved, node_of[heir[unit[node]]], node)
    return replace(graph, edges=edges.assign(**ends))


def _found(calls: pd.DataFrame, groups: list[np.ndarray]) -> str:
    name = calls.set_index("unit")["op_name"]
    counts: Counter[str] = Counter()
    for group in groups:
        counts[str(name.loc[group[-1]])] += len(group)
    return FOUND.format(sum(map(len, groups)), len(groups), listed(counts))
