"""Data parallelism: weights on every rank, gradients averaged, bucket by bucket, while the backward goes on.

overlapped   backward |--|--|--|--|            blocking   backward |--|     |--|     |--|
             buckets     |=====|=====|                    buckets     |=====|  |=====|
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from research.recording.workloads.workload import SEED, LossTrainer, Trainer, Workload, device

NUM_BATCHES = 4  # made before the first step and used in turn
DEFAULT_BUCKET_MB = 25.0  # of DDP
Batch = TypeVar("Batch")
Tensors = tuple[torch.Tensor, ...]


def replicate(
    model: nn.Module, bucket_mb: float, *, group: dist.ProcessGroup | None = None, blocking: bool = False
) -> nn.Module:
    """The model with its gradients averaged over the ranks of `group`; one rank by itself keeps the plain model."""
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


def replicated(model: nn.Module) -> nn.Module:
    """A small model on this rank's device, its gradients averaged over all ranks, in one bucket."""
    return replicate(model.to(device()), DEFAULT_BUCKET_MB)


def own_batches(make: Callable[[], Batch], data_rank: int | None = None) -> Iterator[Batch]:
    """Batches without end; ranks of the same `data_rank` (None: its own number) draw the same."""
    torch.manual_seed(SEED + 1 + (dist.get_rank() if data_rank is None else data_rank))
    return cycle([make() for _ in range(NUM_BATCHES)])


class ReplicatedWorkload(Workload, kind="", letters={}):
    """Base of programs with one model on every rank, batches of each rank's own and one optimizer.

    A subclass is a frozen dataclass of sizes: `class Unet(ReplicatedWorkload, kind="unet", width="channels",
    letters={"levels": "l", ...})`; `bucket_mb` is named where it differs.

    Attributes:
        batch: samples per rank.
        bucket_mb: DDP's bucket.
    """

    batch: int
    bucket_mb: float

    def __init_subclass__(cls, *, kind: str, width: str, letters: Mapping[str, str]) -> None:
        super().__init_subclass__(kind=kind, width=width, letters=letters, otherwise={"bucket_mb": "mb"})

    def model(self) -> nn.Module:
        raise NotImplementedError

    def draw(self) -> Tensors:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        """Forward; [] float32."""
        raise NotImplementedError

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        raise NotImplementedError

    def build(self) -> Trainer:
        """The replicated model, batches and the optimizer."""
        torch.manual_seed(SEED)
        model = replicate(self.model().to(device()), self.bucket_mb)
        batches = own_batches(lambda: tuple(tensor.to(device()) for tensor in self.draw()))
        return LossTrainer((model,), lambda: self.loss(model, next(batches)), (self.optimizer(model.parameters()),))
