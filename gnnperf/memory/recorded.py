"""Peak memory of a recorded rank, from its ops and their shapes.

held       parameters, optimizer state, inputs                       by the optimizer's ops and the step's first uses
gradients  |.............. 0 ..............|===== one by one =====|   AccumulateGrad
others     |== activations grow =====|===== and shrink =====|         lifetimes.py
           forward                    backward                optimizer
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import prod
from pathlib import Path

import msgspec
import numpy as np

from gnnperf.core import InputError, code_of, require, write_bytes
from gnnperf.graph import RankEvents, rank_events
from gnnperf.memory.effects import effects_cached_in
from gnnperf.memory.given import Variant
from gnnperf.memory.lifetimes import Lifetimes
from gnnperf.memory.measured_memory import Part, PeakMemory, Timeline
from gnnperf.memory.planned import cpu_block_bytes, cuda_block_bytes, timeline
from gnnperf.memory.step_calls import Call, StepCalls, ops_digest, step_calls
from gnnperf.memory.storages import Role, TensorSlot, tensors_of
from gnnperf.trace import RunTrace

# What a rank holds from step to step, by its optimizers' ops: parameters, their gradients, optimizer state.
#
# A fused or foreach op takes lists: parameters, gradients, state. An optimizer that goes parameter by parameter changes
# tensors in place: state is multiplied or moved (`mul_`, `lerp_`), and everything else that is added to is a parameter.
#
#     aten::_fused_sgd_  [params] [grads] [momentum]          parameters, gradients, state
#     aten::mul_ buf; aten::add_ buf, grad; aten::add_ param  one multiplied, two added to: one parameter, one state

_FUSED = "aten::_fused_"
_SGD, _MOMENTUM_AT = "aten::_fused_sgd_", 4  # place of the momentum among its arguments
_STATES = {"aten::_fused_adam_": 2, "aten::_fused_adamw_": 2, "aten::_fused_adagrad_": 1}  # tensors per parameter
_FOREACH = "aten::_foreach_"
_KEPT = ("aten::mul_", "aten::lerp_")
_ADDED = ("aten::add_", "aten::addcdiv_")

WEIGHTS, GRADIENTS, STATE = "weights", "gradients", "optimizer state"
TABLES = "weights of embedding tables that their lookup updates"
_UPDATES_TABLES = "split_embedding_backward"  # of fbgemm: tables are no parameters of any optimizer


@dataclass(frozen=True)
class Held:
    """Tensors of one rank."""

    parameters: tuple[TensorSlot, ...]  # those that optimizers change
    state: tuple[TensorSlot, ...]  # of the optimizers
    unknown: tuple[str, ...]  # sentences: what could not be determined
    has_state: bool = True  # whether the state is in the trace, or the optimizer is known to have none


def held(calls: Sequence[Call], with_gradient: Sequence[TensorSlot]) -> Held:
    """Parameters and state from the calls of the optimizers."""
    if not calls:
        return Held(tuple(with_gradient), (), ("optimizer state: no optimizer ran in the step",), has_state=False)
    parameters, state = _foreach(calls, with_gradient)
    changed = [(c.name, c.slots[0]) for c in calls if c.slots and isinstance(c.slots[0], TensorSlot)]  # one by one
    retained, added = (Counter(tensor for name, tensor in changed if name in names) for names in (_KEPT, _ADDED))
    parameters, state = [*(added - retained).elements(), *parameters], [*retained.elements(), *state]
    unknown: list[str] = []
    for call in (c for c in calls if c.name.startswith(_FUSED)):
        lists = [slot for slot in call.slots if isinstance(slot, tuple)]
        parameters += lists[0] if lists else with_gradient
        if lists:
            state += [t for tensors in lists[2:] for t in tensors if t.shape]  # steps are scalars
        else:
            states = _states(call)
            state += [*with_gradient] * (states or 0)
            unknown += [] if states is not None else [f"state of {call.name}"]
    return Held(tuple(parameters), tuple(state), tuple(unknown), bool(parameters) and not unknown)


def _foreach(calls: Sequence[Call], with_gradient: Sequence[TensorSlot]) -> tuple[list[TensorSlot], list[TensorSlot]]:
    """Parameters and state of optimizers that go through lists, torch's default on GPUs.

    Adam divides into parameters, moves its first moment and adds squares to its second; SGD multiplies its momentum and
    adds to both. Where the profiler left long lists out, they are as the gradients.
    """

    def targets(*ops: str) -> list[TensorSlot]:
        chosen = [call for call in calls if call.name.removeprefix(_FOREACH) in ops and call.name.startswith(_FOREACH)]
        given = [call.slots[0] if call.slots else "" for call in chosen]
        return [t for slot in given for t in (slot if isinstance(slot, tuple) else with_gradient)]

    if any(call.name == f"{_FOREACH}addcdiv_" for call in calls):
        return targets("addcdiv_"), targets("lerp_", "addcmul_")
    state, added = Counter(targets("mul_")), Counter(targets("add_"))
    return list((added - state).elements()), list(state.elements())


def _states(call: Call) -> int | None:
    """Tensors that a fused optimizer keeps per parameter, by its name; None unknown."""
    if call.name != _SGD:
        return _STATES.get(call.name)
    momentum = call.slots[_MOMENTUM_AT] if len(call.slots) > _MOMENTUM_AT else ""
    return int(float(momentum) != 0) if isinstance(momentum, str) and momentum else None


@dataclass(frozen=True)
class Stay:
    """Memory that is there from one time to another."""

    num_bytes: int  # requested
    # from_ns, to_ns: both included: what an op returns and what it takes are there together
    from_ns: int
    to_ns: int
    part: Part  # what for
    made_by: str  # op; "" unknown


def peak_of(stays: Sequence[Stay], block_bytes: Callable[[int], int]) -> tuple[dict[Part, int], str]:
    """What is there when most is there, by part, and the op that made the last of it."""
    moves = sorted(
        [(s.from_ns, 0, i) for i, s in enumerate(stays)] + [(s.to_ns, 1, i) for i, s in enumerate(stays)]
    )  # what begins at a time is there before what ends at it has gone
    there = most = 0
    peak_at, peak_by = -1, ""
    for at_ns, ends, number in moves:
        stay = stays[number]
        there += -stay.num_bytes if ends else stay.num_bytes
        if there > most:
            most, peak_at, peak_by = there, at_ns, stay.made_by
    present = [s for s in stays if s.from_ns <= peak_at <= s.to_ns]
    parts: Counter[Part] = Counter()
    for stay in present:
        parts[stay.part] += stay.num_bytes
    rounding = sum(block_bytes(s.num_bytes) - s.num_bytes for s in present)
    return {**{part: parts[part] for part in Part if parts[part]}, Part.ROUNDING: rounding}, peak_by


def timeline_of(stays: Sequence[Stay], begin_ns: int, end_ns: int) -> Timeline:
    """What is there from the begin of a step to its end, at every time at which something comes or goes."""
    moments = [t for s in stays for t in (s.from_ns, s.to_ns, s.to_ns + 1)]  # a stay is there at its end, then gone
    times = np.unique(np.clip(moments, begin_ns, end_ns))  # [n]
    parts: dict[Part, np.ndarray] = {}
    for part in Part:
        own = [s for s in stays if s.part is part]
        sizes = np.array([s.num_bytes for s in own], dtype=np.int64)
        levels = np.zeros(len(times), dtype=np.int64)
        for ends_ns, sign, side in (([s.from_ns for s in own], 1, "right"), ([s.to_ns for s in own], -1, "left")):
            order = np.argsort(ends_ns, kind="stable")
            summed = np.append(0, sizes[order].cumsum())
            levels += sign * summed[np.searchsorted(np.array(ends_ns)[order], times, side=side)]  # type: ignore[call-overload]
        parts[part] = levels
    return timeline((times - begin_ns) / 1e3, parts)


# FSDP's parameters while they are whole.
#
# FSDP::all_gather_copy_out (1)  |==== whole ====|  FSDP::post_forward (1)
# again in the backward          |==== whole ====|  FSDP::post_backward_reshard (1)
# the root group has no number and stays whole from forward to backward

_OUT, _COPY = "FSDP::all_gather_copy_out", "fsdp::split_with_sizes_copy"
_FORWARD, _BACKWARD = "FSDP::post_forward", "FSDP::post_backward_reshard"


def whole_parameters(calls: Sequence[Call], end_ns: int) -> Iterator[Stay]:
    """When which bytes of parameters are whole."""
    for copy in (c for c in calls if c.name == _COPY):
        around = next(c for c in reversed(calls) if c.name.startswith(_OUT) and c.start_ns <= copy.start_ns)
        group = around.name.removeprefix(_OUT)
        ends = {_BACKWARD + group} | ({_FORWARD + group} if group else set())
        to_ns = min((c.end_ns for c in calls if c.name in ends and c.start_ns > copy.start_ns), default=end_ns)
        lists = [slot for slot in copy.slots if isinstance(slot, tuple)]
        num_bytes = sum(t.num_bytes for result in lists for t in result)
        yield Stay(num_bytes, around.start_ns, to_ns, Part.GATHERED, _COPY)


def whole_names(calls: Sequence[Call]) -> Iterator[TensorSlot]:
    """How ops name the memory of whole parameters, next to the parameters' own shapes: as they are copied, and flat."""
    for copy in (c for c in calls if c.name == _COPY):
        for tensor in tensors_of(copy.slots)[1:]:
            yield tensor
            yield TensorSlot((prod(tensor.shape),), tensor.dtype)


_PART = {Role.ACTIVATION: Part.ACTIVATIONS, Role.GRADIENT: Part.GRADIENTS, Role.SPARSE: Part.GRADIENTS}
_DDP, _REDUCED = "DistributedDataParallel.forward", "c10d::allreduce_"
_NAMED_OPS = 5
AS_RECORDED = Variant()


def peak_memory(
    run: RunTrace, *, batches_held: int = 1, step: str | None = None, variant: Variant = AS_RECORDED,
    on_gpu: bool | None = None,
) -> tuple[PeakMemory, ...]:  # fmt: skip
    """Peak memory of every traced rank in one step.

    Ranks that run equal ops in one order are followed once: their timelines have the times of the first of them.

    Args:
        run: traces with the shapes of arguments.
        batches_held: how many batches like the step's own the program keeps between steps. A trace shows only the one
            that the step reads.
        step: name of a step's mark; None, or a name that a rank does not have: its last whole step.
        variant: the program that is requested.
        on_gpu: whether the ranks are requested on GPUs; None: where they were traced.
    """
    require(batches_held >= 1, "batches_held", batches_held, "a whole number >= 1")
    followed: dict[tuple[bytes, bool], PeakMemory] = {}
    result = []
    for table in run.tables:
        events = rank_events(table, table.meta.base_time_ns)
        key = (ops_digest(events, step), bool(table.meta.devices) if on_gpu is None else on_gpu)
        if key not in followed:
            followed[key] = _rank_peak(events, batches_held, step, variant, key[1])
        result.append(replace(followed[key], rank=table.meta.rank))
    return tuple(result)


def cached_peaks(
    read: Callable[[], RunTrace], folder: Path | None, fingerprint: str, *, batches_held: int, step: str,
    variant: Variant = AS_RECORDED, on_gpu: bool | None = None,
) -> tuple[PeakMemory, ...] | None:  # fmt: skip
    """`peak_memory`, kept in a folder from one prediction of a trace to the next; None: the trace has no shapes.

    `read` reads the trace, where `folder` (None keeps nothing) lacks the result; `fingerprint` is of the trace and of
    the code that reads it; the others are those of `peak_memory`.
    """
    key = f"{code_of('memory')} {version('torch')} {fingerprint} {batches_held} {step} {variant} {on_gpu}"
    path = None if folder is None else folder / f"peaks-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    if path is not None:
        with suppress(OSError, msgspec.DecodeError):  # none yet, or damaged: they are computed again
            return msgspec.json.decode(path.read_bytes(), type=tuple[PeakMemory, ...] | None)
    run, result = read(), None
    if all(table.meta.has_shapes for table in run.tables):
        with effects_cached_in(folder):
            result = peak_memory(run, batches_held=batches_held, step=step, variant=variant, on_gpu=on_gpu)
    if path is not None:
        with suppress(OSError, InputError):  # the graph, which goes to the same folder, warns
            write_bytes(path, msgspec.json.encode(result))
    return result


def _rank_peak(events: RankEvents, batches_held: int, name: str | None, variant: Variant, on_gpu: bool) -> PeakMemory:
    step = step_calls(events, name)
    sharded = any(call.name.startswith(_OUT) for call in step.calls)  # by FSDP
    made = [c for c in step.calls if c.is_gradient and tensors_of(c.slots)]
    retained = held(step.optimizer, [tensors_of(c.slots)[0] for c in made if not c.adds])
    taken = [*(tensors_of(c.slots)[0] for c in made), *whole_names(step.calls)]
    followed = Lifetimes(variant, on_gpu)
    followed.walk(step.calls, taken, sharded=sharded)
    blocks = cuda_block_bytes if on_gpu else cpu_block_bytes
    retained = replace(retained, parameters=tuple(map(variant.parameter, retained.parameters)),
                   state=tuple(map(variant.parameter, retained.state)))  # fmt: skip
    stays = [*_stays(retained, followed, step, batches_held, sharded=sharded)]
    parts, at = peak_of(stays, blocks)
    end = [stay for stay in stays if stay.to_ns >= step.end_ns]
    sparse = sum(s.num_bytes for s in followed.storages.all if s.role is Role.SPARSE)
    # DDP's buckets: what it reduces in the backward.
    reduced = (t for c in step.calls if c.name == _REDUCED and c.node >= 0 for t in tensors_of(c.slots))
    in_ddp = any(c.name == _DDP for c in step.calls)
    buckets = sum(variant.parameter(t).num_bytes for t in reduced) if in_ddp else 0
    hidden = buckets if step.copies_into_buckets else 0
    return PeakMemory(
        events.rank, step.step, parts, at, sum(s.num_bytes for s in end) - sparse + buckets - hidden,
        sparse + hidden, buckets, (*retained.unknown, *_untold(followed)), tuple(_missing(retained, step, made)),
        timeline=timeline_of([*stays, Stay(buckets, 0, step.end_ns, Part.GRADIENTS, _DDP)],
                             min((c.start_ns for c in step.calls), default=step.end_ns), step.end_ns),
    )  # fmt: skip


def _missing(retained: Held, step: StepCalls, made: Sequence[Call]) -> Iterator[str]:
    """What every training step holds, and this one does not show."""
    if not retained.parameters:
        yield WEIGHTS
    if any(_UPDATES_TABLES in call.name for call in step.calls):
        yield TABLES
    if not made:
        yield GRADIENTS
    if not retained.has_state:
        yield STATE


def _stays(retained: Held, followed: Lifetimes, step: StepCalls, batches: int, *, sharded: bool) -> Iterable[Stay]:
    sizes = [(t.num_bytes, Part.PARAMETERS) for t in retained.parameters]
    sizes += [(t.num_bytes, Part.OPTIMIZER_STATE) for t in retained.state]
    sizes += [(s.num_bytes * batches, Part.INPUTS) for s in followed.storages.all if s.role is Role.OUTSIDE]
    for num_bytes, part in sizes:
        yield Stay(num_bytes, 0, step.end_ns, part, "")
    for storage in followed.storages.all:
        if storage.role in _PART:
            stays = storage.role is not Role.ACTIVATION
            yield Stay(storage.num_bytes, storage.from_ns, step.end_ns if stays else storage.to_ns,
                       _PART[storage.role], storage.made_by)  # fmt: skip
    for num_bytes, from_ns, to_ns, name in followed.temporary:
        yield Stay(num_bytes, from_ns, to_ns, Part.TEMPORARY, name)
    if sharded:
        yield from whole_parameters(step.calls, step.end_ns)


def _untold(followed: Lifetimes) -> tuple[str, ...]:
    if not followed.unknown:
        return ()
    named = ", ".join(f"{name} ({count})" for name, count in followed.unknown.most_common(_NAMED_OPS))
    return (f"the sizes of what these ops return, taken from who reads it: {named}",)
