"""How embedding tables are accessed: pooling factors and how often a row is asked for again within a batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def index_statistics(batches: Iterable[torch.Tensor], rows: int, dim: int) -> tuple[dict[str, object], ...]:
    """One entry per table, of one rank's samples.

    Args:
        batches: indices, [T, B, P] int64 each.
        rows: rows of every table.
        dim: columns of every table.

    Returns:
        Per table its number, `rows`, `dim`, `pooling_factor` (indices per sample), `batches`, `lookups_per_batch`,
        `distinct_rows_per_batch` (mean) and `reuse_histogram`: of all batches together, the number of rows that a
        batch asks for once, twice, 3 to 4, 5 to 8, ... times.
    """
    found = torch.stack(list(batches))  # [batches, T, B, P]
    number, tables, batch, pooling = found.shape
    result: list[dict[str, object]] = []
    for table in range(tables):
        histogram = _reuse(found[:, table])
        result.append({
            "table": table, "rows": rows, "dim": dim, "pooling_factor": float(pooling), "batches": number,
            "lookups_per_batch": batch * pooling, "distinct_rows_per_batch": sum(histogram) / number,
            "reuse_histogram": histogram,
        })  # fmt: skip
    return tuple(result)


def _reuse(indices: torch.Tensor) -> list[int]:
    """[batches, B, P] int64 -> number of rows by the power of two (rounded up) of their accesses within a batch."""
    accesses = torch.cat([batch.unique(return_counts=True)[1] for batch in indices])
    powers: list[int] = torch.bincount(accesses.double().log2().ceil().long()).tolist()
    return powers
