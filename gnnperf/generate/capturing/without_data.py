"""Where torch looks into tensors that hold no data, and what it does instead while a program is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as data_parallel
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import device_mesh
from torch.distributed.fsdp._fully_shard import _fsdp_init


@contextmanager
def without_data() -> Iterator[None]:
    """While this lasts, modules of tensors without data can be moved, and DDP built and run on them.

    `Module.to` exchanges fake parameters and refuses those that something refers to weakly, which fake tensors always
    are. DDP compares the shapes that all ranks sent, which nobody sent; and it builds its buckets a second time, in the
    order of the first backward, from numbers that it reads back from a tensor. A device mesh reads its ranks from one.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.utils, "swap_tensors", _swapped))
        stack.enter_context(patch.object(data_parallel, "_verify_param_shape_across_processes", _not_compared))
        stack.enter_context(patch.object(dist.Reducer, "_rebuild_buckets", _with_data(dist.Reducer._rebuild_buckets)))
        for module in (device_mesh, _fsdp_init):
            stack.enter_context(patch.object(module, "init_device_mesh", _with_data(device_mesh.init_device_mesh)))
        yield


def _swapped(one: torch.Tensor, other: torch.Tensor) -> None:
    """torch.utils.swap_tensors without its question for weak references: those still refer to `one`."""
    torch._C._swap_tensor_impl(one, other)
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__


def _not_compared(*_: Any, **__: Any) -> None:
    """Ranks that do not exist have the same parameters."""


def _with_data(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same on real tensors: small ones, and buckets whose memory is asked for and never touched."""

    @wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return call(*args, **kwargs)

    return called
