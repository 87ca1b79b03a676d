"""The order of an epoch, from seed and epoch only, and what each of several processes takes of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from gnnperf.core import InputError


class EpochShuffle(Sampler[int]):
    """A permutation drawn from (seed, epoch), so that a resumed run goes on as if it had never stopped.

    Lightning calls `set_epoch` before every epoch.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.epoch = size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return iter(torch.randperm(self.size, generator=generator).tolist())


class SharedBatches(Sampler[list[int]]):
    """What one of several processes takes of every batch: each step of an epoch goes to exactly one process.

    A batch is as large as with one process, so the same settings fit. A last batch with fewer steps than processes
    joins the one before it: a process without work would hold up the others.

    Args:
        sampler: the order of an epoch, the same in all processes.
        batch_size: steps per batch, over all processes.
        rank: this process.
        count: processes.

    Raises:
        InputError: fewer steps, or steps per batch, than processes.
    """

    def __init__(self, sampler: EpochShuffle, batch_size: int, rank: int = 0, count: int = 1) -> None:
        if min(batch_size, len(sampler)) < count:
            raise InputError(f"{count} processes share batches of {min(batch_size, len(sampler))} steps",
                             where="data.batch_size", remedy="larger batches, or fewer processes")  # fmt: skip
        self.sampler, self.batch_size, self.rank, self.count = sampler, batch_size, rank, count

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest >= self.count)

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.sampler)
        ends = [*range(self.batch_size, len(self) * self.batch_size, self.batch_size), len(order)]
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            yield order[begin + self.rank : end : self.count]
