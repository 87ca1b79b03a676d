"""The processes that `torchrun --nproc-per-node N train.py` starts, as it tells them in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    Attributes:
        rank: of this one, from 0.
        count: on all machines.
        count_here: on this machine.
    """

    rank: int = 0
    count: int = 1
    count_here: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes files, prints and evaluates for all."""
        return self.rank == 0

    @property
    def num_machines(self) -> int:
        """On which they run, as many on each."""
        return self.count // self.count_here


def processes() -> Processes:
    """One, unless torchrun says otherwise."""
    rank, count, here = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if rank is None or count is None or here is None:
        return Processes()
    return Processes(int(rank), int(count), int(here))
