"""How embedding tables were accessed in a recorded run, as its card counts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gnnperf.core import InputError

KEYS = ("rows", "dim", "batches", "lookups_per_batch")
KEY = "index_statistics"
ALLOWED = f"{', '.join(KEYS)}: integers above 0; reuse_histogram: counts of rows, not all 0"


@dataclass(frozen=True)
class TableCounts:
    """Tables of one size together: which of them a call looks up is not recorded.

    Attributes:
        rows: of each whole table.
        dim: columns of each whole table.
        lookups: indices of one batch of one rank in one table.
        batches: that were counted, over tables and ranks.
        reuse_histogram: of all these batches, rows that a batch asks for once, twice, 3 to 4, 5 to 8, ... times.
    """

    rows: int
    dim: int
    lookups: int
    batches: int
    reuse_histogram: tuple[int, ...]


def lookups_held(reuse_histogram: Sequence[float]) -> tuple[float, float]:
    """Lookups that a histogram holds at least and at most: each row as often as its bin allows."""
    bins = [(2 ** (place - 1) + 1 if place else 1, 2**place) for place in range(len(reuse_histogram))]
    least, most = (sum(rows * times[i] for rows, times in zip(reuse_histogram, bins, strict=True)) for i in (0, 1))
    return float(least), float(most)


def table_counts(card: Mapping[str, object] | None) -> tuple[TableCounts, ...]:
    """Of a recorder's card, sizes in order of their first table; () where it counts none.

    Raises:
        InputError: an entry is not what the recorder writes.
    """
    result: dict[tuple[int, int, int], TableCounts] = {}
    for one in _entries(card or {}):
        before = result.get((one.rows, one.dim, one.lookups))
        result[one.rows, one.dim, one.lookups] = one if before is None else _sum(before, one)
    return tuple(result.values())


def _sum(one: TableCounts, other: TableCounts) -> TableCounts:
    bins = max(len(one.reuse_histogram), len(other.reuse_histogram))
    padded = [(*t.reuse_histogram, *[0] * (bins - len(t.reuse_histogram))) for t in (one, other)]
    total = tuple(a + b for a, b in zip(*padded, strict=True))
    return TableCounts(one.rows, one.dim, one.lookups, one.batches + other.batches, total)


def _entries(card: Mapping[str, object]) -> Iterator[TableCounts]:
    ranks = card.get("ranks")
    for rank in ranks if isinstance(ranks, list) else []:
        listed = rank.get(KEY, []) if isinstance(rank, Mapping) else []
        if not isinstance(listed, list):
            raise InputError(f"{KEY} is no list", where="the run's card", allowed="a list, one entry per table")
        for place, entry in enumerate(listed):
            yield _entry(entry, f"the run's card, rank {rank.get('rank')}, {KEY} {place + 1}")


def _entry(entry: object, where: str) -> TableCounts:
    result = [entry.get(key) for key in KEYS] if isinstance(entry, Mapping) else []
    sizes = [n for n in result if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    histogram = entry.get("reuse_histogram") if isinstance(entry, Mapping) else None
    counted = isinstance(histogram, list) and all(type(n) is int and n >= 0 for n in histogram) and any(histogram)
    if not counted or len(sizes) != len(KEYS):
        raise InputError("counts of a table are not as the recorder writes them", where=where, allowed=ALLOWED,
                         remedy="record the run again, or leave the counts out of the card")  # fmt: skip
    rows, dim, batches, lookups = sizes
    assert isinstance(histogram, list)
    least, most = lookups_held(histogram)
    if not least <= batches * lookups <= most or sum(histogram) > batches * rows:
        held = f"{sum(histogram)} rows and {least:.0f} to {most:.0f} lookups"
        raise InputError(f"reuse_histogram holds {held}", where=where,
                         allowed=f"of {batches} x {lookups} lookups in {rows} rows")  # fmt: skip
    return TableCounts(rows, dim, lookups, batches, tuple(histogram))
