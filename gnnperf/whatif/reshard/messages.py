"""Messages of the exchanges around lookups: indices to the tables, vectors to the samples, gradients back."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Phase
from gnnperf.generate import Placement
from gnnperf.whatif.reshard.parts import INDEX_BYTES, VALUE_BYTES, Model, Traffic, index_traffic, vector_traffic

EXCHANGE = "all_to_all"
NEARLY = 0.01  # relative


def with_messages(
    name: str, nodes: pd.DataFrame, model: Model, before: Placement, after: Placement
) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes with the messages of another placement; [num_nodes] bool: whose changed.

    Raises:
        InputError: the graph `name` has other exchanges than those of `before`.
    """
    old, new = exchanges(model, before), exchanges(model, after)
    sent = nodes["message_bytes"].to_numpy(copy=True)
    mine = nodes[(nodes["collective"] == EXCHANGE) & nodes["step"].ge(0)]
    for (step, rank, kind), own in mine.groupby(["step", "rank", "node_type"], observed=True, sort=False):
        ids = own.index.to_numpy()
        per_exchange = np.array_split(ids, len(ids)) if kind == NodeType.COLLECTIVE else np.split(ids, len(ids) // 2)
        phases = [str(nodes["phase"].iloc[each[0]]) for each in per_exchange]
        if phases != [str(phase) for phase, _, _ in old]:
            raise InputError(f"{len(phases)} exchanges ({', '.join(phases)}) in step {step}", where=f"graph {name!r}",
                             allowed="two in the forward (indices, vectors), one in the backward")  # fmt: skip
        for each, (_, item, was), (_, _, now) in zip(per_exchange, old, new, strict=True):
            even = kind == NodeType.COLLECTIVE
            expected, wanted = ((t.even if even else t.of_rank(int(str(rank)))) * item for t in (was, now))
            if abs(sent[each[0]] / expected - 1.0) > NEARLY:
                raise InputError(f"an exchange of {sent[each[0]]:.0f} bytes", where=f"graph {name!r}, step {step}",
                                 allowed=f"{expected:.0f} bytes, with the tables placed as is said")  # fmt: skip
            sent[each] = wanted
    changed = ~np.isclose(sent, nodes["message_bytes"].to_numpy(), equal_nan=True)
    return nodes.assign(message_bytes=sent), changed


def exchanges(model: Model, placement: Placement) -> list[tuple[Phase, float, Traffic]]:
    """Phase, bytes per element and traffic of each exchange of a step, in order."""
    vectors = vector_traffic(model, placement)
    return [(Phase.FORWARD, INDEX_BYTES, index_traffic(model, placement)), (Phase.FORWARD, VALUE_BYTES, vectors),
            (Phase.BACKWARD, VALUE_BYTES, Traffic(vectors.sent.T))]  # fmt: skip
