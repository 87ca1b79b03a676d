"""Edits of a graph -> the variant of the step whose memory is asked for, and what no variant tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.memory.scaled import ScaledBatch
from gnnperf.memory.variant import AsRecorded, Variant
from gnnperf.plan import Edit, InputStall, OpLatency, ScaleBatch, Straggler
from gnnperf.plan.batch_sizes import find_batch

TIME_ONLY = (OpLatency, InputStall, Straggler)
NOT_TOLD = "peak memory with {}: it is told without this edit"
SAME_OPS = "whether another batch makes the program keep other tensors: it is taken to make the same ones"


@dataclass(frozen=True)
class MemoryEdits:
    """What edits make of memory.

    Attributes:
        variant: of the step.
        unknown: sentences: what is left out.
    """

    variant: Variant
    unknown: tuple[str, ...]


def memory_edits(graph: ExecutionGraph, edits: Sequence[Edit]) -> MemoryEdits:
    """The variant with another batch; edits of time alone change nothing, all others are named.

    Args:
        graph: of the step, unedited.
        edits: in order.

    Raises:
        InputError: nothing tells which sizes are batch.
    """
    factor = 1.0
    for edit in edits:
        factor *= edit.factor if isinstance(edit, ScaleBatch) else 1.0
    known = (*TIME_ONLY, ScaleBatch)
    unknown = tuple(NOT_TOLD.format(edit) for edit in edits if not isinstance(edit, known))
    if factor == 1.0:
        return MemoryEdits(AsRecorded(), unknown)
    return MemoryEdits(ScaledBatch(find_batch(graph), factor), (SAME_OPS, *unknown))
