"""Steps whose samples have lengths of their own: drawn from a list, padded within their micro-batch.

    lengths.csv   612 80 1999 ...      drawn  |612 80|1999 340|      micro-batches of 2 samples
                                       padded |640   |2048    |      to the longest one, in multiples of 64

Replicas wait for each other at the end of a step, so the one with most work stands for all of them.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from gnnperf.core import InputError, untrusted
from gnnperf.generate.transformer.flops import forward_flops
from gnnperf.generate.transformer.plan import TransformerPlan

MOST_LENGTHS, MOST_BYTES = 1_000_000, 16 << 20  # of a file
LENGTH = re.compile(r"0{0,9}[1-9][0-9]{0,8}")  # below 10^9


def read_lengths(path: Path) -> tuple[int, ...]:
    """The first column of a CSV file; a header is skipped.

    Raises:
        InputError: no such file, no lengths in it, or too many.
    """
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise InputError("no such file, or a larger one than is read", where=str(path),
                         allowed=f"a CSV file of up to {MOST_LENGTHS:,} lengths")  # fmt: skip
    with untrusted.reading(path), path.open(encoding="utf-8", newline="") as file:
        first = [row[0].strip() for row in csv.reader(file) if row]
    texts = first[1:] if first and not any(map(str.isdigit, first[0])) else first
    bad = next((text for text in texts if not LENGTH.fullmatch(text)), None)
    if bad is not None or not 0 < len(texts) <= MOST_LENGTHS:
        raise InputError(f"{len(texts):,} lengths" if bad is None else f"bad value {bad[:20]!r}", where=str(path),
                         allowed=f"whole numbers above 0 in the first column, 1 to {MOST_LENGTHS:,} rows")  # fmt: skip
    return tuple(map(int, texts))


def drawn_steps(plan: TransformerPlan) -> tuple[tuple[int, ...], ...]:
    """Padded lengths [num_micro_batches] of the replica with most work, of each drawn step; by ascending work."""
    lengths = plan.lengths
    assert lengths is not None, "only plans with lengths have them"
    rng, values = np.random.default_rng(lengths.seed), np.array(lengths.values)
    shape = (lengths.draws, plan.parallelism.data, plan.num_micro_batches, plan.schedule.micro_batch)
    longest = rng.choice(values, shape).max(axis=-1)  # [draws, replicas, micro-batches]
    padded = -(-longest // lengths.multiple) * lengths.multiple

    @cache
    def work(length: int) -> float:
        return length * forward_flops(plan, length)

    def total(own: Iterable[int]) -> float:
        return sum(map(work, own))

    return tuple(sorted((tuple(max(step, key=total)) for step in padded.tolist()), key=total))


def with_sequence(plan: TransformerPlan, length: int) -> TransformerPlan:
    """The same plan, all of whose samples have one length."""
    return replace(plan, model=replace(plan.model, sequence=length), lengths=None)
