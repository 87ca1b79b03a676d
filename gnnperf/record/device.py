"""Which device a rank works on. Not every program makes its device the current one."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist


def cuda_device() -> int | None:
    """Index of the CUDA device this rank works on, or None while it has not used any.

    The device its process group is bound to; else the one that holds most of its memory; else, before it holds any,
    the current one, or, if that is only the default, the one that its launcher means for it.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    bound = _bound_device()
    if bound is not None:
        return bound
    count, current = torch.cuda.device_count(), torch.cuda.current_device()
    held_bytes = [torch.cuda.memory_allocated(index) for index in range(count)]
    if max(held_bytes) > 0:
        return max(range(count), key=lambda index: (held_bytes[index], index == current))
    meant = int(os.environ.get("LOCAL_RANK", current))
    return meant if current == 0 and meant < count else current


def _bound_device() -> int | None:
    """Of `init_process_group(device_id=…)`."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    bound = getattr(dist.group.WORLD, "bound_device_id", None)
    return bound.index if isinstance(bound, torch.device) and bound.type == "cuda" else None


def barrier() -> None:
    """Wait for all ranks; NCCL, left as it is, guesses the device from the rank's number."""
    index = cuda_device()
    if index is not None and dist.get_backend() == "nccl":
        dist.barrier(device_ids=[index])
    else:
        dist.barrier()
