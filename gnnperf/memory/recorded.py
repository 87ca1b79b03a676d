"""Peak memory of a recorded rank, from its ops and their shapes.

held       parameters, optimizer state, inputs                       as the optimizer and the step's first uses tell
gradients  |.............. 0 ..............|===== one by one =====|   AccumulateGrad
others     |== activations grow =====|===== and shrink =====|         lifetimes.py
           forward                    backward                optimizer
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gnnperf.core import require
from gnnperf.graph import rank_events
from gnnperf.memory.gathered import is_sharded, whole_names, whole_parameters
from gnnperf.memory.held import Held, held
from gnnperf.memory.lifetimes import Lifetimes
from gnnperf.memory.peak import Part, PeakMemory
from gnnperf.memory.rounding import cpu_block_bytes, cuda_block_bytes
from gnnperf.memory.slots import tensors_of
from gnnperf.memory.step_calls import StepCalls, step_calls
from gnnperf.memory.storages import Role
from gnnperf.memory.timeline import Stay, peak_of
from gnnperf.memory.variant import AsRecorded, Variant
from gnnperf.trace import RunTrace, TraceTable

_PART = {Role.ACTIVATION: Part.ACTIVATIONS, Role.GRADIENT: Part.GRADIENTS, Role.SPARSE: Part.GRADIENTS}
_DDP, _REDUCED = "DistributedDataParallel.forward", "c10d::allreduce_"
_NAMED_OPS = 5
AS_RECORDED = AsRecorded()


def peak_memory(
    run: RunTrace, *, batches_held: int = 1, step: str | None = None, variant: Variant = AS_RECORDED,
    on_gpu: bool | None = None,
) -> tuple[PeakMemory, ...]:  # fmt: skip
    """Peak memory of every traced rank in one step.

    Args:
        run: traces with the shapes of arguments.
        batches_held: how many batches like the step's own the program keeps between steps. A trace shows only the one
            that the step reads.
        step: name of a step's mark; None, or a name that a rank does not have: its last whole step.
        variant: the program that is asked about.
        on_gpu: whether the ranks are asked about on GPUs; None: where they were traced.
    """
    require(batches_held >= 1, "batches_held", batches_held, "a whole number >= 1")
    return tuple(
        _rank_peak(table, batches_held, step, variant, bool(table.meta.devices) if on_gpu is None else on_gpu)
        for table in run.tables
    )


def _rank_peak(table: TraceTable, batches_held: int, name: str | None, variant: Variant, on_gpu: bool) -> PeakMemory:
    step = step_calls(rank_events(table, table.meta.base_time_ns), name)
    sharded = is_sharded(step.calls)
    made = [c for c in step.calls if c.is_gradient and tensors_of(c.slots)]
    kept = held(step.optimizer, [tensors_of(c.slots)[0] for c in made if not c.adds])
    taken = [*(tensors_of(c.slots)[0] for c in made), *whole_names(step.calls)]
    followed = Lifetimes(variant, on_gpu)
    followed.walk(step.calls, taken, sharded=sharded)
    blocks = cuda_block_bytes if on_gpu else cpu_block_bytes
    kept = replace(kept, parameters=tuple(map(variant.parameter, kept.parameters)),
                   state=tuple(map(variant.parameter, kept.state)))  # fmt: skip
    stays = [*_always(kept, followed, step, batches_held), *_of_step(followed, step, sharded=sharded)]
    parts, at = peak_of(stays, blocks)
    end = [stay for stay in stays if stay.to_ns >= step.end_ns]
    sparse = sum(s.num_bytes for s in followed.storages.all if s.role is Role.SPARSE)
    buckets = _buckets(step, variant)
    hidden = buckets if step.copies_into_buckets else 0
    return PeakMemory(
        table.meta.rank, step.step, parts, at, sum(s.num_bytes for s in end) - sparse + buckets - hidden,
        sparse + hidden, buckets, (*kept.unknown, *_untold(followed)),
    )  # fmt: skip


def _always(kept: Held, followed: Lifetimes, step: StepCalls, batches: int) -> Iterable[Stay]:
    outside = [s.num_bytes * batches for s in followed.storages.all if s.role is Role.OUTSIDE]
    of_part = {
        Part.PARAMETERS: [t.num_bytes for t in kept.parameters],
        Part.OPTIMIZER_STATE: [t.num_bytes for t in kept.state],
        Part.INPUTS: outside,
    }
    for part, sizes in of_part.items():
        for num_bytes in sizes:
            yield Stay(num_bytes, 0, step.end_ns, part, "")


def _of_step(followed: Lifetimes, step: StepCalls, *, sharded: bool) -> Iterable[Stay]:
    for storage in followed.storages.all:
        if storage.role in _PART:
            stays = storage.role is not Role.ACTIVATION
            yield Stay(storage.num_bytes, storage.from_ns, step.end_ns if stays else storage.to_ns,
                       _PART[storage.role], storage.made_by)  # fmt: skip
    for num_bytes, from_ns, to_ns, name in followed.temporary:
        yield Stay(num_bytes, from_ns, to_ns, Part.TEMPORARY, name)
    if sharded:
        for num_bytes, from_ns, to_ns, name in whole_parameters(step.calls, step.end_ns):
            yield Stay(num_bytes, from_ns, to_ns, Part.GATHERED, name)


def _buckets(step: StepCalls, variant: Variant) -> int:
    """Bytes of DDP's buckets: what it reduces in the backward."""
    if not any(c.name == _DDP for c in step.calls):
        return 0
    reduced = (t for c in step.calls if c.name == _REDUCED and c.node >= 0 for t in tensors_of(c.slots))
    return sum(variant.parameter(t).num_bytes for t in reduced)


def _untold(followed: Lifetimes) -> tuple[str, ...]:
    if not followed.unknown:
        return ()
    named = ", ".join(f"{name} ({count})" for name, count in followed.unknown.most_common(_NAMED_OPS))
    return (f"the sizes of what these ops return, taken from who reads it: {named}",)
