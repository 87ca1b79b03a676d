"""Data parallelism: weights on every rank, gradients averaged, bucket by bucket, while the backward goes on.

overlapped   backward |--|--|--|--|            blocking   backward |--|     |--|     |--|
             buckets     |=====|=====|                    buckets     |=====|  |=====|
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def replicate(
    model: nn.Module, bucket_mb: float, *, group: dist.ProcessGroup | None = None, blocking: bool = False
) -> nn.Module:
    """The model with its gradients averaged over the ranks of `group`; one rank alone keeps the plain model.

    Args:
        model: the same on every rank.
        bucket_mb: DDP's bucket: smaller ones give more, earlier all-reduces.
        group: None all ranks.
        blocking: a rank waits for a bucket where it sends it; the loss must be `shared_by_ranks`.
    """
    if dist.get_world_size(group) == 1:
        return model
    replicated = DistributedDataParallel(model, bucket_cap_mb=bucket_mb, process_group=group)
    if blocking:
        replicated.register_comm_hook(group, reduce_at_once)
    return replicated


def reduce_at_once(group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the sum of a bucket, awaited. Without a hook DDP divides while it fills the bucket."""
    summed = bucket.buffer()
    dist.all_reduce(summed, group=group)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(summed)
    return done


# DDP looks the hook's types up as objects, and finds text.
reduce_at_once.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def shared_by_ranks(loss: torch.Tensor) -> torch.Tensor:
    """The same loss, its gradients divided by the number of ranks: their sum is DDP's mean, at no further cost."""
    loss.register_hook(lambda gradient: gradient / dist.get_world_size())
    return loss
