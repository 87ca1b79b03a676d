"""Data parallelism: weights on every rank, gradients averaged, bucket by bucket, while the backward goes on.

overlapped   backward |--|--|--|--|            blocking   backward |--|     |--|     |--|
             buckets     |=====|=====|                    buckets     |=====|  |=====|
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from research.recording.workloads.workload import SEED, device

NUM_BATCHES = 4  # made before the first step and used in turn
DEFAULT_BUCKET_MB = 25.0  # of DDP
Batch = TypeVar("Batch")


def replicate(model: nn.Module, bucket_mb: float, *, blocking: bool = False) -> nn.Module:
    """The model with its gradients averaged over all ranks; one rank by itself keeps the plain model."""
    if dist.get_world_size() == 1:
        return model
    replicated = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    if blocking:
        replicated.register_comm_hook(None, reduce_at_once)
    return replicated


def reduce_at_once(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the sum of a bucket, awaited. Without a hook DDP divides while it fills the bucket."""
    summed = bucket.buffer()
    dist.all_reduce(summed, group=group)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(summed)
    return done


def shared_by_ranks(loss: torch.Tensor) -> torch.Tensor:
    """The same loss, its gradients divided by the number of ranks: their sum is DDP's mean, at no further cost."""
    loss.register_hook(lambda gradient: gradient / dist.get_world_size())
    return loss


def replicated(model: nn.Module) -> nn.Module:
    """A small model on this rank's device, its gradients averaged over all ranks, in one bucket."""
    return replicate(model.to(device()), DEFAULT_BUCKET_MB)


def own_batches(
    make: Callable[[], Batch], data_rank: int | None = None, num_batches: int = NUM_BATCHES
) -> Iterator[Batch]:
    """Batches without end; ranks of the same `data_rank` (None: its own number) draw the same."""
    torch.manual_seed(SEED + 1 + (dist.get_rank() if data_rank is None else data_rank))
    return cycle([make() for _ in range(num_batches)])
