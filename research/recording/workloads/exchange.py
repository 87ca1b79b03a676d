"""Collectives with a backward, begun and ended apart: between the two a rank does something else.

forward   begin |  other forward  | end          backward   end |  other backward  | begin
          starts                   waits                    starts                   waits
                                                            the transposed collective

What was received in the forward, its gradient is sent back: all-to-all is its own transpose, all-gather and
reduce-scatter are each other's. A `Blocking` one waits where it starts; all else, the order of ops too, stays the same.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Start = Callable[[torch.Tensor], tuple[torch.Tensor, dist.Work]]


def start_all_to_all(rows: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
    """Send the i-th of `world_size` equal parts of `rows` [world_size * n, ...] to rank i; received: the same shape."""
    received = torch.empty_like(rows)
    return received, dist.all_to_all_single(received, rows, async_op=True)


def start_uneven_all_to_all(send: Sequence[int], receive: Sequence[int]) -> Start:
    """An all-to-all of send[i] rows to rank i, receive[i] from it."""

    def start(rows: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
        received = rows.new_empty(sum(receive), *rows.shape[1:])
        return received, dist.all_to_all_single(received, rows, list(receive), list(send), async_op=True)

    return start


def start_all_gather(rows: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
    """Everybody's `rows` [n, ...], in order of rank: [world_size * n, ...]."""
    received = rows.new_empty(dist.get_world_size() * rows.shape[0], *rows.shape[1:])
    return received, dist.all_gather_single(received, rows, async_op=True)


def start_reduce_scatter(rows: torch.Tensor) -> tuple[torch.Tensor, dist.Work]:
    """The sum over ranks of the own part of `rows` [world_size * n, ...]: [n, ...]."""
    received = rows.new_empty(rows.shape[0] // dist.get_world_size(), *rows.shape[1:])
    return received, dist.reduce_scatter_single(received, rows, async_op=True)


class Transfer:
    """One use of a collective: `end(begin(rows))` is what it returns, with a gradient.

    `forward` starts the collective, `backward` its transpose.
    """

    def __init__(self, forward: Start, backward: Start) -> None:
        self._forward, self._backward = forward, backward
        self._in_flight: tuple[torch.Tensor, dist.Work] | None = None

    def begin(self, rows: torch.Tensor) -> torch.Tensor:
        """Start sending `rows` (contiguous); the result is for `end` only: it is not complete yet."""
        begun: torch.Tensor = _Begin.apply(rows, self)
        return begun

    def end(self, begun: torch.Tensor) -> torch.Tensor:
        """Wait; what was received."""
        ended: torch.Tensor = _End.apply(begun, self)
        return ended

    def start_forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self._start(self._forward, rows)

    def start_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of what was sent, to be received."""
        return self._start(self._backward, gradient.contiguous())

    def wait(self) -> torch.Tensor:
        assert self._in_flight is not None, "nothing was started"
        received, work = self._in_flight
        self._in_flight = None
        work.wait()
        return received

    def _start(self, start: Start, rows: torch.Tensor) -> torch.Tensor:
        self._in_flight = start(rows)
        return self._in_flight[0]


class Blocking(Transfer):
    """A transfer that waits where it starts."""

    def _start(self, start: Start, rows: torch.Tensor) -> torch.Tensor:
        received = super()._start(start, rows)
        assert self._in_flight is not None
        self._in_flight[1].wait()  # a second wait, at the end, returns at once
        return received


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, transfer: Transfer) -> torch.Tensor:
        ctx.transfer = transfer
        return transfer.start_forward(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.transfer.wait(), None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, begun: torch.Tensor, transfer: Transfer) -> torch.Tensor:
        ctx.transfer = transfer
        return transfer.wait().view_as(begun)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.transfer.start_backward(gradients[0])
        return gradients[0], None  # of the shape that autograd expects; _Begin takes what was received instead


def exchange(rows: torch.Tensor) -> torch.Tensor:
    """Send the i-th of `world_size` equal parts of `rows` to rank i; the parts received, in order of rank.

    `rows` are [world_size * n, ...], contiguous.
    """
    if dist.get_world_size() == 1:
        return rows
    transfer = Blocking(start_all_to_all, start_all_to_all)
    return transfer.end(transfer.begin(rows))  # [world_size * n, ...]
