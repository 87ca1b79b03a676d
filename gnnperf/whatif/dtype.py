"""Ops of one dtype compute in another.

mixed   linear, conv, attention in the new dtype; parameters, optimizer, messages as they are     (autocast)
all     everything that has the old dtype, messages included                                      (model.to(dtype))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, OpFamily, Phase, require
from gnnperf.generate import FLOATING, parse
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph
from gnnperf.whatif.edit import Edited, unedited
from gnnperf.whatif.recost import formula_cost

MATRIX = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)
SCOPES = ("mixed", "all")
CASTS = "what casting from {} to {} and back costs: no cast is added"
BETWEEN = "which ops between matrix products, convolutions and attention follow them into {}: they stay in {}"
OPTIMIZER = "what optimizers do with parameters in {}: copies in full precision are not added"


@dataclass(frozen=True)
class ChangeDtype:
    """Ops of one dtype become ops of another.

    Attributes:
        of: dtype of the ops that change (torch's name: float32).
        to: their new dtype.
        scope: mixed or all.
    """

    of: str
    to: str
    scope: str = "mixed"

    def __post_init__(self) -> None:
        """Refuse what is no floating dtype and no scope."""
        for key, value in (("of", self.of), ("to", self.to)):
            require(value in FLOATING, f"{key} of a dtype", value, ", ".join(FLOATING))
        require(self.scope in SCOPES, "scope of a dtype", self.scope, ", ".join(SCOPES))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Change dtypes, bytes and messages; recorded latencies of what changes become unknown.

        Raises:
            InputError: no op of that dtype.
        """
        if self.of == self.to:
            return unedited(graph)
        chosen = self._chosen(graph.nodes)
        if not chosen.any():
            result = sorted({str(dtype) for dtype in graph.nodes["dtype"].dropna()})
            raise InputError(f"no op of dtype {self.of!r}", where=f"graph {graph.name!r}", allowed=", ".join(result))
        ratio = DTYPE_BYTES[self.to] / DTYPE_BYTES[self.of]
        moved, estimated = self._bytes(graph.nodes, chosen, ratio)
        sent = chosen & graph.nodes["message_bytes"].notna().to_numpy()
        works = chosen & (graph.nodes["node_type"] != NodeType.HOST).to_numpy()
        nodes = graph.nodes.assign(
            dtype=pd.Categorical(np.where(chosen, self.to, graph.nodes["dtype"].astype(object))),
            bytes=moved,
            message_bytes=graph.nodes["message_bytes"].where(~sent, graph.nodes["message_bytes"] * ratio),
            latency_us=graph.nodes["latency_us"].mask(works),
        )
        return Edited(replace(graph, nodes=nodes), chosen, np.arange(graph.num_nodes), self._unknown(estimated))

    def _chosen(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] bool."""
        own = (nodes["dtype"] == self.of) & nodes["step"].ge(0)
        if self.scope == "mixed":
            own &= nodes["family"].isin([str(f) for f in MATRIX]) & (nodes["phase"] != Phase.OPTIMIZER)
        return own.to_numpy()

    def _bytes(self, nodes: pd.DataFrame, chosen: np.ndarray, ratio: float) -> tuple[np.ndarray, list[str]]:
        """[num_nodes] bytes, and the ops that no formula answers for: all their bytes are taken to change."""
        moved, estimated = nodes["bytes"].to_numpy(copy=True), []
        table = nodes.loc[chosen & ~np.isnan(moved), ["op_name", "input_dims", "num_siblings"]]
        for (name, dims), rows in table.groupby(["op_name", "input_dims"], observed=True, dropna=False):
            before = formula_cost(str(name), parse(dims), self.of).bytes if isinstance(dims, str) else float("nan")
            after = formula_cost(str(name), parse(dims), self.to).bytes if isinstance(dims, str) else float("nan")
            at, share = rows.index.to_numpy(), rows["num_siblings"].to_numpy()
            if isnan(before) or isnan(after):
                estimated.append(str(name))
                moved[at] *= ratio
            else:
                moved[at] = after / share + ratio * (moved[at] - before / share)
        return moved, sorted(set(estimated))

    def _unknown(self, estimated: list[str]) -> tuple[str, ...]:
        sentences = [BETWEEN.format(self.to, self.of), CASTS.format(self.of, self.to)]
        if self.scope == "all":
            sentences = [OPTIMIZER.format(self.to)]
        if estimated:
            sentences.append(f"which inputs of {', '.join(estimated)} are {self.of}: all were taken to be")
        return tuple(sentences)
