"""A checkpoint that learned of links beside their token buckets, asked about a link whose bucket nobody tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnperf.graph import ExecutionGraph

UNTOLD = (
    "The checkpoint's training was told of token buckets of {size:g} bytes on limited links (data.bucket_bytes), and "
    "this trace's card names a rate and no bucket: its transfers are told as if none of them passed at once. "
    "bucket_bytes={size:g} tells it."
)


def learned_beside(provenance: Mapping[str, Any]) -> float | None:
    """What training was told of buckets (`data.bucket_bytes`); None: nothing, or made before this was kept."""
    training = provenance.get("training")
    told = training.get("bucket_bytes") if isinstance(training, Mapping) else None
    return float(told) if isinstance(told, int | float) else None


def untold(graph: ExecutionGraph, learned_bytes: float | None, follows_card: bool) -> tuple[str, ...]:
    """What to say where the network learned of buckets, and the trace's limited links are told without.

    Args:
        graph: of the trace.
        learned_bytes: learned_beside of the checkpoint.
        follows_card: whether links are predicted as the trace's card says.
    """
    placement = graph.placement
    if learned_bytes is None or placement is None or not follows_card:
        return ()
    missed = placement.is_limited and placement.bucket_bytes is None
    return (UNTOLD.format(size=learned_bytes),) if missed else ()
