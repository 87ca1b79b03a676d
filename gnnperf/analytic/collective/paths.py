"""Links one after the other, and machines inside sites: mixed, wide-area and hierarchical collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.collective.terms import ring_terms
from gnnperf.errors import require
from gnnperf.hardware.spec import LinkSpec


@dataclass(frozen=True)
class Level:
    """One level of a hierarchy, the innermost first.

    Attributes:
        ranks: members that `link` joins: GPUs of a machine, then machines of a site, then sites.
        link: between them, per member of the level below and direction.
    """

    ranks: int
    link: LinkSpec


def path_of(links: Sequence[LinkSpec]) -> LinkSpec:
    """The link that behaves like several in a row: the slowest rules, latencies add.

    A pipelined transfer keeps all of them busy, so only the slowest costs time; the first byte passes each.

    Raises:
        InputError: no link.
    """
    require(len(links) > 0, "links", len(links), "at least one link")
    slowest = min(links, key=_sustained)
    return LinkSpec(
        name="+".join(link.name for link in links),
        bandwidth_bytes_per_s=slowest.bandwidth_bytes_per_s,
        latency_us=sum(link.latency_us for link in links),
        sustained_bandwidth_share=slowest.sustained_bandwidth_share,
        source="; ".join(dict.fromkeys(link.source for link in links)),
    )


def hierarchical_all_reduce_us(message_bytes: np.ndarray, levels: Sequence[Level], start_us: float) -> np.ndarray:
    """All-reduce that scatters inward out and gathers outward in: only an n-th of the bytes crosses the next level.

    Reduce-scatter on each level but the last, all-reduce on the last, all-gather back (Jia et al. 2018, section 4.3,
    hierarchical all-reduce; Cho et al. 2019, BlueConnect). Every level is a ring.

    Args:
        message_bytes: [n] bytes of one rank's input.
        levels: the innermost first.
        start_us: start-up of each of the collectives it consists of.

    Returns:
        [n] us.

    Raises:
        InputError: no level, or one without members.
    """
    require(len(levels) > 0, "levels", len(levels), "at least one level")
    total, part = np.zeros(len(message_bytes)), message_bytes.astype(float)
    for level in levels[:-1]:
        require(level.ranks >= 1, "ranks", level.ranks, "a number from 1 up")
        total += 2 * _ring_us("reduce_scatter", part, level, start_us)  # the all-gather back moves the same bytes
        part = part / level.ranks
    return total + _ring_us("all_reduce", part, levels[-1], start_us)


def _ring_us(kind: str, message_bytes: np.ndarray, level: Level, start_us: float) -> np.ndarray:
    hops, share = ring_terms(np.array([kind], object), np.array([float(level.ranks)]))  # [1], [1]
    return start_us + hops * level.link.latency_us + share * message_bytes / _sustained(level.link) * 1e6


def _sustained(link: LinkSpec) -> float:
    return link.bandwidth_bytes_per_s * link.sustained_bandwidth_share
