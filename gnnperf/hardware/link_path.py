"""Links one after the other: mixed and wide-area paths."""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.core import require
from gnnperf.hardware.spec import LinkSpec


def in_a_row(links: Sequence[LinkSpec], where: str) -> LinkSpec:
    """The link that behaves like several in a row: the slowest rules, latencies add.

    A pipelined transfer keeps all of them busy, so only the slowest costs time; the first byte passes each.

    Raises:
        InputError: no link; `where` says which key asked for it.
    """
    require(len(links) > 0, where, "no link", "at least one link")
    slowest = min(links, key=lambda link: link.sustained_bytes_per_s)
    return LinkSpec(
        name="+".join(link.name for link in links),
        bandwidth_bytes_per_s=slowest.bandwidth_bytes_per_s,
        latency_us=sum(link.latency_us for link in links),
        sustained_bandwidth_share=slowest.sustained_bandwidth_share,
        source="; ".join(dict.fromkeys(link.source for link in links)),
        medium=slowest.medium,
        bucket_bytes=slowest.bucket_bytes,
    )
