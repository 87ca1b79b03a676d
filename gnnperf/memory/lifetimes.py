"""From when to when each tensor of a step is held: what ops make, what autograd keeps, what becomes a gradient.

A trace says when an op ran, not when a tensor went. The rules:

- a tensor goes with its last use, or, if a backward needs it, when the node of that forward op has run;
- what an op asks for inside and does not return is there while it runs;
- what AccumulateGrad is given stays until the next step, as do the rows of a sparse gradient;
- what an op returned and torch cannot tell is the next tensor that nobody made;
- what nobody made was there before the step: data, buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnnperf.memory.effects import CannotTell, Effect, effect_of
from gnnperf.memory.inside import asked_bytes
from gnnperf.memory.onednn import workspace_bytes
from gnnperf.memory.recomputed import first_runs
from gnnperf.memory.slots import TensorSlot, tensors_of, with_tensors
from gnnperf.memory.step_calls import SPARSE_PARTS, Call
from gnnperf.memory.storages import Role, Storage, Storages

_SPARSE_AT = 9  # place of the flag among the arguments of _embedding_bag_backward
_PICKS_ROWS = "aten::index_select"
_ROWS_OF_A_GRADIENT = "aten::embedding_sparse_backward"
_LIBRARIES = ("c10d::", "fsdp::")  # their ops are no nodes
_FROM_SHARDS = "fsdp::all_gather_copy_in"  # its list is shards, which stay; its tensor is the buffer
_FROM_BUFFER, _BUFFER = "fsdp::split_with_sizes_copy", "aten::empty"
_JUST_MADE = 4  # storages: they make what they fill right before
_SCATTERED = "c10d::_reduce_scatter_base_"
_SUMS = ("AddBackward", "SubBackward")  # what comes in goes to both operands
_COPIES = ("aten::clone", "aten::new_empty_strided", "aten::empty_strided", "aten::empty_like")


@dataclass
class Lifetimes:
    """A walk over the calls of one step.

    Attributes:
        storages: all memory of the step.
        temporary: (bytes, from_ns, to_ns, op) of what ops hold while they run.
        unknown: op -> calls whose results nobody could tell.
    """

    storages: Storages = field(default_factory=Storages)
    temporary: list[tuple[int, int, int, str]] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    _saved: dict[int, list[Storage]] = field(default_factory=dict)  # by autograd's number
    _near: dict[int, set[int]] = field(default_factory=dict)  # by node: what it takes and makes
    _sparse: set[int] = field(default_factory=set)  # nodes whose gradient is made of rows, and not yet of a parameter
    _untold: list[tuple[Call, bool]] = field(default_factory=list)

    def walk(self, calls: Sequence[Call], parameters: Sequence[TensorSlot], *, sharded: bool) -> None:
        """Follow a step.

        Args:
            calls: in order of time.
            parameters: as ops take them.
            sharded: whether gradients of whole parameters only live until they are reduced.
        """
        for slot in parameters:
            known = self.storages.make(0, Role.PARAMETER, (0, 0), "", requires_grad=True)
            self.storages.name(known, slot.shape, slot.dtype or "float32")
        last = {call.sequence: call.event for call in calls if call.is_op}
        nodes = {call.event: call for call in calls if call.is_node}
        run = {call.sequence for call in nodes.values()} - {-1}
        busy = {call.node for call in calls if call.is_op}
        first = first_runs(calls)
        recomputed = {call.event for call in first.values()}
        for call in calls:
            node = nodes.get(call.node)
            self.storages.in_backward = node is not None
            if call.name in SPARSE_PARTS:
                self._rows(call)
            elif call.is_gradient:
                self._gradient(call, sharded=sharded)
            elif call.is_op:
                number = first[call.event].sequence if call.event in first else call.sequence
                keeps = number in run and (call.event in first or last[number] == call.event)
                self._op(call, node, number if keeps else -1, saves=call.event not in recomputed)
            elif call.slots:
                self._taken(call, node, passes_on=call.node not in busy)
        for node in nodes.values():
            for storage in self._saved.get(node.sequence, ()):
                storage.to_ns = max(storage.to_ns, node.end_ns)

    def _taken(self, call: Call, node: Call | None, *, passes_on: bool) -> None:
        """A node, or a collective, takes tensors; a node without an op of its own hands them on."""
        if call.name == _FROM_BUFFER:
            self._end_buffers(call)
        scattered, newest = False, len(self.storages.all)
        likely = range(newest - _JUST_MADE, newest) if call.name.startswith(_LIBRARIES) else ()
        slots = [s for s in call.slots if isinstance(s, TensorSlot)] if call.name == _FROM_SHARDS else call.slots
        for slot in tensors_of(tuple(slots)):
            found = self.storages.take(slot.shape, slot.dtype, likely, call=call.event) or self._of_others(slot, call)
            if found is None:
                continue
            storage, dtype = found
            until = call if node is None or call.name.startswith(_LIBRARIES) else node
            storage.to_ns = max(storage.to_ns, until.end_ns)
            if call.name == _SCATTERED and storage.role is Role.ACTIVATION and not scattered:
                scattered, storage.role = True, Role.GRADIENT  # of this rank's shard: the first argument
            if node is None:
                continue
            self._near.setdefault(node.event, set()).add(storage.number)
            if passes_on:
                self.storages.name(storage, slot.shape, dtype, 2 if node.node_name.startswith(_SUMS) else 1)

    def _end_buffers(self, call: Call) -> None:
        """What was gathered is where it belongs: the buffer and what the library gathered into have served."""
        num_bytes = sum(t.num_bytes for t in tensors_of(tuple(s for s in call.slots if isinstance(s, tuple))))
        for storage in self.storages.all:
            if storage.num_bytes == num_bytes and storage.role is Role.ACTIVATION and storage.made_by == _BUFFER:
                storage.is_over = True

    def _of_others(self, slot: TensorSlot, call: Call) -> tuple[Storage, str] | None:
        """What a collective takes and nobody made is a bucket of DDP's, which is counted apart."""
        if not call.name.startswith("c10d::"):
            return None
        bucket = self.storages.make(0, Role.PARAMETER, (0, 0), "", requires_grad=False)
        self.storages.name(bucket, slot.shape, slot.dtype or "float32")
        return bucket, slot.dtype

    def _gradient(self, call: Call, *, sharded: bool) -> None:
        """Of a parameter: it is added to the one that is there, copied, or kept as it comes."""
        names = {name for name, _ in call.inside}
        for slot in tensors_of(call.slots)[:1]:
            found = self.storages.take(slot.shape, slot.dtype, call=call.event, role=Role.ACTIVATION)
            adds, copies = call.adds, not names.isdisjoint(_COPIES)
            if found is not None:
                found[0].to_ns = max(found[0].to_ns, call.end_ns)
            if found is None and self._sparse:
                self._keep_rows(self._sparse.pop())
            elif not adds and (copies or found is None):
                role = Role.ACTIVATION if sharded else Role.GRADIENT
                made = self._make(slot.num_bytes, role, call, requires_grad=False)
                self.storages.name(made, slot.shape, slot.dtype)
            elif found is not None and not adds and not sharded:
                found[0].role = Role.GRADIENT
            elif found is not None and sharded:
                self.storages.name(found[0], slot.shape, slot.dtype)

    def _rows(self, call: Call) -> None:
        """The gradient of a table, of the rows that were looked up if the op was told so."""
        if len(call.slots) > _SPARSE_AT and call.slots[_SPARSE_AT] == "True":
            self._sparse.add(call.node)

    def _keep_rows(self, node: int) -> None:
        """The rows that a node picked stay as a part of its sparse gradient."""
        for number in self._near.get(node, ()):
            storage = self.storages.all[number]
            if storage.made_by == _PICKS_ROWS and storage.role is Role.ACTIVATION:
                storage.role = Role.SPARSE

    def _op(self, call: Call, node: Call | None, number: int, *, saves: bool) -> None:
        """An op; `number` is that of the node that its backward is, -1 none, and `saves` whether that keeps tensors."""
        keeps = number >= 0
        storages, tensors = self._arguments(call, node)
        if call.name == _ROWS_OF_A_GRADIENT:
            self._sparse.add(call.node)
            for storage in storages:
                storage.role = Role.SPARSE if storage.role is Role.ACTIVATION else storage.role
            return
        if not keeps:
            tensors = [replace(t, requires_grad=False) for t in tensors]
        effect = _effect(call, tensors)
        if effect is None:
            self.unknown[call.name] += 1
            self._untold.append((call, keeps))
            return
        made = self._results(call, effect, storages, keeps=keeps)
        if node is not None:
            self._near.setdefault(node.event, set()).update(s.number for s in made)
        if keeps and saves:
            kept = [storages[i] for i in effect.saved_inputs] + [made[i] for i in effect.saved_results]
            if effect.saved_bytes:
                kept.append(self._make(effect.saved_bytes, Role.ACTIVATION, call, requires_grad=False))
            self._saved.setdefault(number, []).extend(kept)
        new = {s.number: s.num_bytes for s, r in zip(made, effect.results, strict=True) if r.of_input is None}
        more = max(asked_bytes(call.inside) - sum(new.values()), 0)
        more = max(more, workspace_bytes(call, more))
        if more > 0:
            self.temporary.append((more, call.start_ns, call.end_ns, call.name))

    def _arguments(self, call: Call, node: Call | None) -> tuple[list[Storage], list[TensorSlot]]:
        """The memory of each tensor that a call takes, and what is known of the tensor then."""
        likely: set[int] = set()
        if node is not None and not call.is_engine:
            likely = self._near.get(node.event, set()) | {s.number for s in self._saved.get(node.sequence, ())}
        storages: list[Storage] = []
        tensors: list[TensorSlot] = []
        for slot in tensors_of(call.slots):
            found = self.storages.take(slot.shape, slot.dtype, likely, call=call.event, op=call.name)
            storage, dtype = found or self._never_made(slot, call)
            storage.to_ns = max(storage.to_ns, call.end_ns)
            storages.append(storage)
            tensors.append(TensorSlot(slot.shape, dtype, storage.requires_grad))
        return storages, tensors

    def _never_made(self, slot: TensorSlot, call: Call) -> tuple[Storage, str]:
        """The result that could not be told, else something that was there before the step."""
        dtype = slot.dtype or "float32"
        if self._untold and call.node == self._untold[-1][0].node:
            source, requires_grad = self._untold.pop()
            made = self._make(slot.num_bytes, Role.ACTIVATION, source, requires_grad=requires_grad)
        else:
            made = self._make(slot.num_bytes, Role.OUTSIDE, call, requires_grad=False)
        self.storages.name(made, slot.shape, dtype)
        return made, dtype

    def _results(self, call: Call, effect: Effect, storages: list[Storage], *, keeps: bool) -> list[Storage]:
        made: list[Storage] = []
        for result in effect.results:
            if result.of_input is not None:
                storage = storages[result.of_input]
                storage.requires_grad |= keeps and storage.role is Role.ACTIVATION
            elif result.of_result is not None:
                storage = made[result.of_result]
            else:
                storage = self._make(result.num_bytes, Role.ACTIVATION, call, requires_grad=keeps)
            made.append(storage)
            self.storages.name(storage, result.shape, result.dtype)
        return made

    def _make(self, num_bytes: int, role: Role, call: Call, *, requires_grad: bool) -> Storage:
        return self.storages.make(num_bytes, role, (call.start_ns, call.end_ns), call.name, requires_grad=requires_grad)


def _effect(call: Call, tensors: list[TensorSlot]) -> Effect | None:
    """None: cannot be told. Where autograd cannot follow all tensors, the trace meant others: it follows the first."""
    alone = [replace(t, requires_grad=t.requires_grad and i == 0) for i, t in enumerate(tensors)]
    for tried in (tensors, alone):
        try:
            return effect_of(call.name, with_tensors(call.slots, tried))
        except CannotTell:
            continue
    return None
