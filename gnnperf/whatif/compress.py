"""Messages of collectives go compressed: fewer bytes over the wire.

before   [T1|all_reduce]   4 n bytes float32
after    [T1|all_reduce]   4 n x ratio + extra bytes, or n x bytes of the new dtype
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType
from gnnperf.generate import FLOATING, SUM, WORK, check_compression
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph
from gnnperf.whatif.edit import Edited

ON_THE_WIRE = (NodeType.COLLECTIVE, NodeType.COMM)
UNSIZED = "how many bytes {} messages have: they stay as they are"
SMALL = "how {} messages of another or unknown dtype are sent: they stay as they are"


@dataclass(frozen=True)
class CompressMessages:
    """Messages of one kind of collective are sent compressed.

    Attributes:
        kind: all_reduce, all_to_all, ...
        ratio: compressed / uncompressed bytes (values of 4 bytes as 2: 0.5; one value in a hundred: 0.01); None: `to`
            is given.
        to: dtype that the values are sent in (float16); None: `ratio` is given.
        extra_bytes: scales, positions, headers that come with each message.
        phase: forward, backward, optimizer; None any.
    """

    kind: str = "all_reduce"
    ratio: float | None = None
    to: str | None = None
    extra_bytes: float = 0.0
    phase: str | None = None

    def __post_init__(self) -> None:
        """Refuse both or none of ratio and dtype, and what makes messages larger."""
        check_compression(self.ratio, self.to, self.extra_bytes)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Change the messages; recorded latencies of their transfers become unknown.

        Raises:
            InputError: the graph has no such message.
        """
        named = self._named(graph)
        ratio = self._ratio(graph.nodes)  # [num_nodes]
        size = graph.nodes["message_bytes"].to_numpy()
        chosen = named & (size > 0) & (ratio < 1.0)
        if not chosen.any():
            what = f"no {self.kind} message that {self.to or self.ratio} makes smaller"
            raise InputError(what, where=f"graph {graph.name!r}", allowed="messages of known size and larger values")
        nodes = graph.nodes.assign(
            message_bytes=np.where(chosen, size * ratio + self.extra_bytes, size),
            dtype=self._dtype(graph.nodes["dtype"], chosen),
            latency_us=graph.nodes["latency_us"].mask(chosen),
        )
        unknown = self._unknown(int((named & np.isnan(size)).sum()), int((named & (size > 0) & ~(ratio < 1.0)).sum()))
        return Edited(replace(graph, nodes=nodes), chosen, np.arange(graph.num_nodes), unknown)

    def _named(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool."""
        nodes = graph.nodes
        on_wire = nodes["node_type"].isin([str(t) for t in ON_THE_WIRE]) & nodes["step"].ge(0)
        named = on_wire & (nodes["collective"] == self.kind)
        if self.phase is not None:
            named &= nodes["phase"] == self.phase
        if not named.any():
            kinds = sorted({str(kind) for kind in nodes["collective"][on_wire].dropna()})
            near = difflib.get_close_matches(self.kind, kinds, n=1, cutoff=0.4)
            raise InputError(f"no {self.kind!r}" + (f" in {self.phase}" if self.phase else ""),
                             where=f"graph {graph.name!r}", allowed=", ".join(kinds) or "a run with collectives",
                             remedy=f"did you mean {near[0]!r}?" if near else "")  # fmt: skip
        return named.to_numpy()

    def _ratio(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] compressed / uncompressed; NaN where the dtype of the values is not known."""
        if self.ratio is not None:
            return np.full(len(nodes), self.ratio)
        own = nodes["dtype"].astype(object).map({name: DTYPE_BYTES[name] for name in FLOATING}).to_numpy(float)
        ratio: np.ndarray = DTYPE_BYTES[str(self.to)] / own
        return ratio

    def _dtype(self, column: pd.Series, chosen: np.ndarray) -> pd.Series:
        """[num_nodes] dtype of the values as they are sent."""
        if self.to is None:
            return column
        values = np.where(chosen, self.to, column.astype(object))
        return pd.Series(pd.Categorical(values), index=column.index)

    def _unknown(self, num_unsized: int, num_small: int) -> tuple[str, ...]:
        sentences = [WORK]
        if self.kind in ("all_reduce", "reduce_scatter", "reduce"):
            sentences.append(SUM)
        if num_unsized:
            sentences.append(UNSIZED.format(num_unsized))
        if num_small:
            sentences.append(SMALL.format(num_small))
        return tuple(sentences)
