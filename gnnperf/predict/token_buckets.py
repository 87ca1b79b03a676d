"""Token buckets of limited links: those of the training, and what a trace's card leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnperf.graph import ExecutionGraph

NO_BUCKET = (
    "The checkpoint was trained with token buckets of {size:g} bytes on limited links (data.bucket_bytes). This "
    "trace's card names a rate and no bucket, so transfers are predicted without one; bucket_bytes={size:g} sets it."
)


def trained_bucket_bytes(provenance: Mapping[str, Any]) -> float | None:
    """`data.bucket_bytes` of the training; None: none, or made before this was kept."""
    training = provenance.get("training")
    given = training.get("bucket_bytes") if isinstance(training, Mapping) else None
    return float(given) if isinstance(given, int | float) else None


def missing_bucket(graph: ExecutionGraph, trained_bytes: float | None, follows_card: bool) -> tuple[str, ...]:
    """A warning where training had token buckets, and the trace's limited links are given without."""
    placement = graph.placement
    if trained_bytes is None or placement is None or not follows_card:
        return ()
    missing = placement.is_limited and placement.bucket_bytes is None
    return (NO_BUCKET.format(size=trained_bytes),) if missing else ()
