"""All-to-all with a backward: what a rank received in the forward, its gradient is sent back."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows)
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        sent_back = torch.empty_like(gradients[0], memory_format=torch.contiguous_format)
        dist.all_to_all_single(sent_back, gradients[0].contiguous())
        return sent_back


def exchange(rows: torch.Tensor) -> torch.Tensor:
    """Send the i-th of `world_size` equal parts of `rows` to rank i; the parts received, in order of rank.

    Args:
        rows: [world_size * n, ...] contiguous.
    """
    received: torch.Tensor = _Exchange.apply(rows)
    return received  # [world_size * n, ...]
