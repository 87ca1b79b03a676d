"""Items of recommendation models: batched lookups and updates, kernels that move bytes, transfers by name.

A transfer of all ranks begins when the kernels issued before it are done. Kernels wait for its end from where it is
awaited on.
"""

from collections.abc import Sequence

import numpy as np

from gnnperf.analytic import BatchedTable, batched_work, stated
from gnnperf.core import OpFamily, Phase
from gnnperf.generate.transformer.items import Await, Group, Lane, Line, Op, Record, Transfer
from gnnperf.graph import OpCost


def batched_op(name: str, tables: Sequence[BatchedTable], phase: Phase) -> Op:
    """A batched lookup or update, LOOK_UP or UPDATE (gnnperf.analytic.embedding.batched_calls): no reuse in caches."""
    cost = OpCost(*batched_work(tuple(tables), name), OpFamily.EMBEDDING, "float32")
    return Op(name, stated(tuple(tables)), None, None, phase, stated_cost=cost)


def moves(name: str, moved_bytes: float, phase: Phase) -> Op:
    """A kernel that reads and writes bytes, of which no shape is stated: sorted indices, indices in another order."""
    return Op(name, None, None, None, phase, stated_cost=OpCost(0.0, moved_bytes, OpFamily.INDEXING, "int64"))


def exchange(name: str, each_bytes: np.ndarray, rank: int, phase: Phase, dtype: str = "float32") -> Transfer:
    """An uneven all-to-all; `each_bytes` [ranks], of the even one that keeps a rank as busy."""
    return Transfer("all_to_all", Group.TENSOR, float(each_bytes[rank]), dtype, phase, awaited=False, name=name,
                    busiest_bytes=float(each_bytes.max()))  # fmt: skip


def equal(name: str, kind: str, message_bytes: float, phase: Phase) -> Transfer:
    """A collective to which all ranks give as much."""
    return Transfer(kind, Group.TENSOR, float(message_bytes), "float32", phase, awaited=False, name=name)


def ended(transfer: Transfer) -> Record:
    """Names the end of a transfer that was issued last: all collectives share one stream, as of one process group."""
    return Record(Lane.TENSOR, transfer.name)


def awaited(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Kernels issued from here on wait for the ends of these transfers."""
    return tuple(Await(Lane.COMPUTE, line.name) for line in lines if isinstance(line, Transfer))
