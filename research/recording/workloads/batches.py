"""Batches of a program's own, made before the first step and used in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import TypeVar

import torch
import torch.distributed as dist

from research.recording.workloads.workload import SEED

NUM_BATCHES = 4
Batch = TypeVar("Batch")


def own_batches(make: Callable[[], Batch]) -> Iterator[Batch]:
    """Without end; every rank draws others."""
    torch.manual_seed(SEED + 1 + dist.get_rank())
    return cycle([make() for _ in range(NUM_BATCHES)])
