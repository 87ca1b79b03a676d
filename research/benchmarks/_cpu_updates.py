"""More ops for `gnnperf calibrate --ops`: of optimizers that are neither fused nor foreach, dropout, roots, logarithms.

    python -m research.benchmarks._cpu_updates > updates.jsonl
    gnnperf calibrate --out datasets/cpu-updates --ranks 1 --minutes 2 --ops updates.jsonl

Sizes are drawn at random. Which ops are listed was chosen after looking at programs of datasets/cpu-unseen: Adam and
Adagrad as torch runs them on CPUs, op by op, and dropout. Roots and logarithms are of positive numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from research.benchmarks._cpu_ops import Entry, Sizes, op_entry

SEED = 12
RANGES = ((64, 4096), (4096, 1 << 17), (1 << 17, 1 << 20))  # elements
ROOTS = ("sqrt", "rsqrt", "log")
DROPPED = (0.1, 0.1, 0.1, 0.2, 0.2, 0.5)  # a likely branch is predicted, so the share matters


def entries(sizes: Sizes) -> Iterator[Entry]:
    """All ops."""
    for low, high in RANGES:
        n = sizes.between(low, high)
        yield from (op_entry(name, (n,)) for name in ROOTS)
        yield from (op_entry(name, (n,), (n,), (n,)) for name in ("addcmul_", "addcdiv_"))
        yield op_entry("lerp_", (n,), (n,), arguments={"weight": 0.1})
        yield op_entry("div", (n,), (n,))
    for share in DROPPED:
        shape = (sizes.between(16, 1024), sizes.between(16, 512))
        yield op_entry("native_dropout", shape, arguments={"p": share, "train": True})


if __name__ == "__main__":
    print("\n".join(json.dumps(entry) for entry in entries(Sizes(SEED))))
