"""What a rank's program is made of: ops and views as in other plans, transfers that begin here and end there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnperf.analytic import BatchedTable, batched_work, stated
from gnnperf.core import OpFamily, Phase
from gnnperf.generate.transformer.items import HostWait, Op, Views
from gnnperf.graph import OpCost


@dataclass(frozen=True)
class Transfer:
    """This rank's part in a collective of all ranks. It begins when the kernels issued before it are done.

    Attributes:
        name: equal on all ranks, once in a step.
        kind: as in the graph's column `collective`.
        message_bytes: of this rank; of uneven exchanges, those of the even one that keeps it as busy.
        busiest_bytes: of the rank that has most.
        phase: part of the step.
        dtype: of the message.
    """

    name: str
    kind: str
    message_bytes: float
    busiest_bytes: float
    phase: Phase
    dtype: str = "float32"


@dataclass(frozen=True)
class Await:
    """Kernels issued from here on wait for the ends of transfers.

    Attributes:
        names: of transfers that began before.
    """

    names: tuple[str, ...]


@dataclass(frozen=True)
class BatchedOp:
    """A batched lookup or update (gnnperf.analytic.embedding.batched_calls).

    Attributes:
        name: LOOK_UP or UPDATE.
        tables: that it goes through.
        phase: part of the step.
    """

    name: str
    tables: tuple[BatchedTable, ...]
    phase: Phase

    @cached_property
    def dims(self) -> str:
        """The tables, as `input_dims`."""
        return stated(self.tables)

    @cached_property
    def cost(self) -> OpCost:
        """FLOPs and bytes without reuse in caches."""
        return OpCost(*batched_work(self.tables, self.name), OpFamily.EMBEDDING, "float32")


@dataclass(frozen=True)
class Moves:
    """A kernel that moves bytes, of which no shape is stated: sorted indices, indices put in another order.

    Attributes:
        name: as fbgemm writes it.
        moved_bytes: read and written.
        phase: part of the step.
    """

    name: str
    moved_bytes: float
    phase: Phase

    @property
    def dims(self) -> str | None:
        """Not stated."""
        return None

    @property
    def cost(self) -> OpCost:
        """Bytes only."""
        return OpCost(0.0, self.moved_bytes, OpFamily.INDEXING, "int64")


Kernel = Op | BatchedOp | Moves
Item = Kernel | Transfer | Await | HostWait | Views
Program = Sequence[Item]


def exchange(name: str, each_bytes: np.ndarray, rank: int, phase: Phase, dtype: str = "float32") -> Transfer:
    """An uneven all-to-all; `each_bytes` [ranks]."""
    return Transfer(name, "all_to_all", float(each_bytes[rank]), float(each_bytes.max()), phase, dtype)


def equal(name: str, kind: str, message_bytes: float, phase: Phase) -> Transfer:
    """A collective to which all ranks give as much."""
    return Transfer(name, kind, float(message_bytes), float(message_bytes), phase)
