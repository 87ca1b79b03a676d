"""Lookups for `gnnperf calibrate --ops`: more tables, skews and pooling factors than the suite has.

python -m research.benchmarks._embedding_ops > ops.jsonl
gnnperf calibrate --out calibrated/lookups --ranks 1 --ops ops.jsonl
python -m research.benchmarks.embedding calibrated/lookups/ops.parquet
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

ROWS, SKEWS = (1_000, 10_000, 50_000, 200_000, 1_000_000), (1.0, 2.0, 4.0)
DIMS, POOLING, BATCHES, TABLES = (8, 16, 32, 64, 128), (1, 2, 8, 32), (128, 512, 2048), (1, 1, 4)
MOST_TABLE_BYTES, MOST_LOOKUPS, NUM_LOOKUPS, SEED = 256_000_000, 32_768, 42, 7
WAYS = (("forward", False), ("backward", False), ("backward", True))


def lookups() -> list[tuple[int, int, int, int, float, int]]:
    """(rows, dim, pooling, batch, skew, tables), each row count and skew as often as the others."""
    chance = random.Random(SEED)
    result: dict[tuple[int, int, int, int, float, int], None] = {}
    turn = 0
    while len(result) < NUM_LOOKUPS:
        rows, skew = ROWS[turn % len(ROWS)], SKEWS[turn % len(SKEWS)]
        dim, pooling, batch, tables = (chance.choice(axis) for axis in (DIMS, POOLING, BATCHES, TABLES))
        turn += 1
        if rows * dim * 4 * tables <= MOST_TABLE_BYTES and batch * pooling <= MOST_LOOKUPS:
            result[rows, dim, pooling, batch, skew, tables] = None
    return list(result)


def lines() -> Iterator[str]:
    """One op per line."""
    for rows, dim, pooling, batch, skew, tables in lookups():
        for direction, sparse in WAYS:
            yield json.dumps({
                "op": "aten::embedding_bag", "shapes": [[rows, dim], [batch * pooling], [batch]],
                "dtypes": ["float32", "int64", "int64"], "arguments": {"mode": 0, "sparse": sparse},
                "direction": direction, "tables": tables, "skew": skew,
            })  # fmt: skip


if __name__ == "__main__":
    print("\n".join(lines()))
