"""Edits of a graph -> the variant of the step whose memory is asked for, and what no variant tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.graph import ExecutionGraph
from gnnperf.memory.recast import AllCast, Autocast
from gnnperf.memory.scaled import ScaledBatch
from gnnperf.memory.variant import AsRecorded, Variant
from gnnperf.whatif import ChangeDtype, Edit, InputStall, OpLatency, ScaleBatch, Straggler, find_batch

MIXED = "mixed"  # of ChangeDtype's scopes: autocast
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


def memory_edits(graph: ExecutionGraph, edits: Sequence[Edit], *, on_gpu: bool) -> MemoryEdits:
    """The variant with another batch or dtype; edits of time alone change nothing, all others are named.

    Args:
        graph: of the step, unedited.
        edits: in order.
        on_gpu: where the step runs.

    Raises:
        InputError: nothing tells which sizes are batch.
    """
    factor = 1.0
    for edit in edits:
        factor *= edit.factor if isinstance(edit, ScaleBatch) else 1.0
    known = (*TIME_ONLY, ScaleBatch, ChangeDtype)
    unknown = [NOT_TOLD.format(edit) for edit in edits if not isinstance(edit, known)]
    variant: Variant = AsRecorded()
    if factor != 1.0:
        variant = ScaledBatch(find_batch(graph), factor)
        unknown.append(SAME_OPS)
    for edit in edits:
        if isinstance(edit, ChangeDtype):
            variant = recast(edit, variant, on_gpu=on_gpu)
    return MemoryEdits(variant, tuple(unknown))


def recast(edit: ChangeDtype, inner: Variant, *, on_gpu: bool) -> Variant:
    """The step in another dtype."""
    if edit.scope == MIXED:
        return Autocast(edit.of, edit.to, inner, on_gpu)
    return AllCast(edit.of, edit.to, inner)
