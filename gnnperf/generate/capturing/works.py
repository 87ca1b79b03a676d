"""Collectives that move nothing: each says in the profile when it was issued and when a program waited for it.

main    |c10d::alltoall_base_ [issue 7]|  other ops  [wait 7]  next op
The marks are ranges of the profiler; `logical_time` puts the transfer between them and takes them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._profiler import _RecordFunctionFast

MARK = "gnnperf::"
ISSUE, WAIT = MARK + "issue ", MARK + "wait "
SHARED = MARK + "shared"  # the first argument of the op around it is held by others too


def mark(text: str) -> None:
    """Leave a mark in the profile."""
    with _RecordFunctionFast(text):
        pass


@dataclass(frozen=True)
class Issued:
    """One rank's part in a collective, as it was called.

    Attributes:
        number: of all that this rank issued.
        op: name of the dispatcher's op, c10d::allreduce_.
        group: ranks of the process group.
        peer: of a send or receive: rank of the group at the other end; None of collectives.
        tag: of a send or receive.
        dims: shapes of the tensors that are sent.
        types: their dtypes, as the profiler writes them.
    """

    number: int
    op: str
    group: tuple[int, ...]
    peer: int | None
    tag: int
    dims: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]

    def mark(self) -> None:
        """Say in the profile that it is issued now."""
        mark(f"{ISSUE}{self.number}")


class FakeWork(dist.Work):
    """What an asynchronous collective returns: complete at once.

    Args:
        number: of the collective.
        tensors: its results.
        finish: what the thread that waits does with them first.
    """

    def __init__(self, number: int, tensors: list[torch.Tensor], finish: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._number, self._finish = number, finish
        self._future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, *_: Any) -> bool:
        """Say in the profile that a program waits here."""
        mark(f"{WAIT}{self._number}")
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Holds the tensors that were given: DDP unpacks them."""
        return self._future
