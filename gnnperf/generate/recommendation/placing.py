"""A placement that nobody chose: largest tables first, each to the rank that holds least."""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.generate.tables import Placed, Placement, Split, Table


def largest_first(tables: Sequence[Table], ranks: int) -> Placement:
    """Whole tables; equal ones in their order, the first of equally empty ranks."""
    held = [0.0] * ranks
    found: dict[int, Placed] = {}
    for index in sorted(range(len(tables)), key=lambda i: (-tables[i].rows * tables[i].dim, i)):
        rank = min(range(ranks), key=lambda r: (held[r], r))
        held[rank] += tables[index].rows * tables[index].dim
        found[index] = Placed(Split.TABLE, (rank,))
    return tuple(found[index] for index in range(len(tables)))
