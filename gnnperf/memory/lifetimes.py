"""From when to when each tensor of a step is held: what ops make, what autograd keeps, what becomes a gradient.

A trace states when an op ran, not when a tensor went. The rules:

- a tensor goes with its last use, or, if a backward needs it, when the node of that forward op has run;
- what an op allocates inside and does not return is there while it runs;
- what AccumulateGrad is given stays until the next step, as do the rows of a sparse gradient;
- what an op returned and torch cannot determine is the next tensor that no one made;
- what no one made was there before the step: data, buffers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnnperf.memory.effects import Effect
from gnnperf.memory.given import Variant, given, given_in, inside_bytes
from gnnperf.memory.step_calls import NODE, SPARSE_PARTS, Call
from gnnperf.memory.storages import Name, Role, Storage, Storages, TensorSlot, tensors_of

# Activation checkpointing: ops of the forward that the backward runs once more, to make again what was not kept.
#
# forward    addmm [7] gelu [8] mm [9]           nothing kept but what goes in
# backward   node [9]: addmm gelu | mm's backward      the first node that needs something runs them again
#            node [8] ...                        what the second run keeps goes with the nodes of the first


def first_runs(calls: Sequence[Call]) -> dict[int, Call]:
    """Event of an op that ran again -> the call of its first run."""
    run = {call.sequence for call in calls if call.is_node} - {-1}
    forward = [call for call in calls if call.is_op and call.node < 0]
    result: dict[int, Call] = {}
    taken: set[int] = set()
    by_node: dict[int, list[Call]] = {}  # ops that autograd follows and for which no node runs
    for call in calls:
        if call.is_op and call.node >= 0 and call.sequence >= 0 and call.sequence not in run:
            by_node.setdefault(call.node, []).append(call)
    for again in by_node.values():
        first = _first(forward, again, run, taken)
        result.update({one.event: before for one, before in zip(again, first, strict=False)})
        taken.update(call.event for call in first)
    return result


def _first(forward: Sequence[Call], again: Sequence[Call], run: set[int], taken: set[int]) -> Sequence[Call]:
    """The last stretch of the forward with the same ops on the same shapes; () if there is none."""
    length = len(again)
    for begin in range(len(forward) - length, -1, -1):
        stretch = forward[begin : begin + length]
        same = all(a.name == b.name and a.slots == b.slots for a, b in zip(stretch, again, strict=True))
        if same and any(c.sequence in run for c in stretch) and not any(c.event in taken for c in stretch):
            return stretch
    return ()


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
    """A walk over the calls of one step."""

    variant: Variant  # the program that is requested
    on_gpu: bool = False  # whether it runs on GPUs; oneDNN's copies are of CPUs
    storages: Storages = field(default_factory=Storages)  # all memory of the step
    # (bytes, from_ns, to_ns, op) of what ops hold while they run
    temporary: list[tuple[int, int, int, str]] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)  # op -> calls with unknown results
    _saved: dict[int, list[Storage]] = field(default_factory=dict)  # by autograd's number
    _near: dict[int, set[int]] = field(default_factory=dict)  # by node: what it takes and makes
    _sparse: set[int] = field(default_factory=set)  # nodes whose gradient is made of rows, and not yet of a parameter
    _untold: list[tuple[Call, bool]] = field(default_factory=list)
    _sharded: bool = False
    _copies: dict[int, Name] = field(default_factory=dict)  # by parameter: autocast makes one for all its uses

    def walk(self, calls: Sequence[Call], parameters: Sequence[TensorSlot], *, sharded: bool) -> None:
        """Follow a step."""
        self._sharded = sharded
        for slot in parameters:
            known = self.storages.make(0, Role.PARAMETER, (0, 0), "", requires_grad=True)
            actual = self.variant.parameter(replace(slot, dtype=slot.dtype or "float32"))
            self.storages.name(known, slot.shape, slot.dtype or "float32", actual=actual)
        last = {call.sequence: call.event for call in calls if call.is_op}
        nodes = {call.event: call for call in calls if call.is_node}
        run = {call.sequence for call in nodes.values()} - {-1}
        busy = {call.node for call in calls if call.is_op}
        first = first_runs(calls)
        recomputed = {call.event for call in first.values()}
        for call in calls:
            node = nodes.get(call.node)
            self.storages.in_backward = node is not None
            if node is not None:
                self._copies.clear()  # autocast's, at the end of the forward pass
            if call.name in SPARSE_PARTS:
                # The gradient of a table, of the rows that were looked up if the op was given so.
                if len(call.slots) > _SPARSE_AT and call.slots[_SPARSE_AT] == "True":
                    self._sparse.add(call.node)
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
            # What was gathered is where it belongs: the buffer and what the library gathered into have served.
            num_bytes = sum(t.num_bytes for t in tensors_of(tuple(s for s in call.slots if isinstance(s, tuple))))
            for each in self.storages.all:
                each.is_over |= (each.num_bytes, each.role, each.made_by) == (num_bytes, Role.ACTIVATION, _BUFFER)
        scattered, newest = False, len(self.storages.all)
        likely = range(newest - _JUST_MADE, newest) if call.name.startswith(_LIBRARIES) else ()
        slots = [s for s in call.slots if isinstance(s, TensorSlot)] if call.name == _FROM_SHARDS else call.slots
        for slot in tensors_of(tuple(slots)):
            result = self.storages.take(slot.shape, slot.dtype, likely, call=call.event) or self._of_others(slot, call)
            if result is None:
                continue
            storage = result.storage
            until = call if node is None or call.name.startswith(_LIBRARIES) else node
            storage.to_ns = max(storage.to_ns, until.end_ns)
            if call.name == _SCATTERED and storage.role is Role.ACTIVATION and not scattered:
                scattered, storage.role = True, Role.GRADIENT  # of this rank's shard: the first argument
            if node is None:
                continue
            self._near.setdefault(node.event, set()).add(storage.number)
            if passes_on:
                times = 2 if node.name.removeprefix(NODE).startswith(_SUMS) else 1
                self.storages.name(storage, slot.shape, result.dtype, times, actual=result.actual)

    def _of_others(self, slot: TensorSlot, call: Call) -> Name | None:
        """What a collective takes and no one made is a bucket of DDP's, which is counted apart."""
        if not call.name.startswith("c10d::"):
            return None
        bucket = self.storages.make(0, Role.PARAMETER, (0, 0), "", requires_grad=False)
        self.storages.name(bucket, slot.shape, slot.dtype or "float32")
        return self.storages.take(slot.shape, "", call=call.event)

    def _gradient(self, call: Call, *, sharded: bool) -> None:
        """Of a parameter: it is added to the one that is there, copied, or kept as it comes."""
        names = {name for name, _ in call.inside}
        for slot in tensors_of(call.slots)[:1]:
            result = self.storages.take(slot.shape, slot.dtype, call=call.event, role=Role.ACTIVATION)
            adds, copies = call.adds, not names.isdisjoint(_COPIES)
            own = self.variant.parameter(slot)
            copies = copies or (result is not None and result.actual.dtype != (own.dtype or result.actual.dtype))
            if result is not None:
                result.storage.to_ns = max(result.storage.to_ns, call.end_ns)
                if result.actual.shape != slot.shape:  # a variant's mistake: a gradient is as large as its parameter
                    result.storage.num_bytes = own.num_bytes
            if result is None and self._sparse:
                # The rows that a node picked stay as a part of its sparse gradient.
                for storage in (self.storages.all[number] for number in self._near.get(self._sparse.pop(), ())):
                    if storage.made_by == _PICKS_ROWS and storage.role is Role.ACTIVATION:
                        storage.role = Role.SPARSE
            elif not adds and (copies or result is None):
                role = Role.ACTIVATION if sharded else Role.GRADIENT
                made = self._make(own.num_bytes, role, call, requires_grad=False)
                self.storages.name(made, slot.shape, slot.dtype)
            elif result is not None and not adds and not sharded:
                result.storage.role = Role.GRADIENT
            elif result is not None and sharded:
                self.storages.name(result.storage, slot.shape, slot.dtype, actual=result.actual)

    def _op(self, call: Call, node: Call | None, number: int, *, saves: bool) -> None:
        """An op; `number` is that of the node that its backward is, -1 none, and `saves` whether that keeps tensors."""
        keeps = number >= 0
        storages, tensors, actual = self._arguments(call, node)
        if call.name == _ROWS_OF_A_GRADIENT:
            self._sparse.add(call.node)
            for storage in storages:
                storage.role = Role.SPARSE if storage.role is Role.ACTIVATION else storage.role
            return
        if not keeps:
            tensors = [replace(t, requires_grad=False) for t in tensors]
            actual = [replace(t, requires_grad=False) for t in actual]
        effect = now = given(call.name, call.slots, tensors)
        storages, actual = self._cast(call, storages, tensors, actual)
        if effect is not None and (tensors or not self._sharded):  # FSDP's buffers, [ranks, elements], are never data
            followed = [s.role is Role.ACTIVATION for s in storages]
            now = given_in(self.variant, call, effect, tensors, actual, followed)
        if effect is None or now is None:
            self.unknown[call.name] += 1
            self._untold.append((call, keeps))
            return
        made = self._results(call, effect, now, storages, keeps=keeps)
        if node is not None:
            self._near.setdefault(node.event, set()).update(s.number for s in made)
        if keeps and saves:
            retained = [storages[i] for i in now.saved_inputs] + [made[i] for i in now.saved_results]
            if now.saved_bytes:
                retained.append(self._make(now.saved_bytes, Role.ACTIVATION, call, requires_grad=False))
            self._saved.setdefault(number, []).extend(retained)
        more = inside_bytes(call, effect, tensors, actual, on_gpu=self.on_gpu)
        if more > 0:
            self.temporary.append((more, call.start_ns, call.end_ns, call.name))

    def _cast(
        self, call: Call, storages: list[Storage], recorded: list[TensorSlot], actual: list[TensorSlot]
    ) -> tuple[list[Storage], list[TensorSlot]]:
        """Copies in another dtype, where the variant makes them: of a parameter one, of data each time one."""
        given: list[Name] = []
        casts = self.variant.casts(call, actual)
        for storage, before, tensor, to in zip(storages, recorded, actual, casts, strict=True):
            result = self._copies.get(storage.number) if to else Name(storage, before.dtype, tensor, in_backward=False)
            if result is None or result.actual.shape != tensor.shape:
                copy = replace(tensor, dtype=to)
                made = self._make(copy.num_bytes, Role.ACTIVATION, call, requires_grad=storage.requires_grad)
                result = self.storages.name(made, before.shape, before.dtype, actual=copy)
                if storage.role is Role.PARAMETER:
                    self._copies[storage.number] = result
            result.storage.to_ns = max(result.storage.to_ns, call.end_ns)
            given.append(result)
        return [name.storage for name in given], [name.actual for name in given]

    def _arguments(self, call: Call, node: Call | None) -> tuple[list[Storage], list[TensorSlot], list[TensorSlot]]:
        """The memory of each tensor that a call takes, and what is known of the tensor, as recorded and as it is."""
        likely: set[int] = set()
        if node is not None and not call.is_engine:
            likely = self._near.get(node.event, set()) | {s.number for s in self._saved.get(node.sequence, ())}
        storages: list[Storage] = []
        tensors: list[TensorSlot] = []
        actual: list[TensorSlot] = []
        for slot in tensors_of(call.slots):
            result = self.storages.take(slot.shape, slot.dtype, likely, call=call.event, op=call.name)
            name = result or self._never_made(slot, call)
            storage = name.storage
            storage.to_ns = max(storage.to_ns, call.end_ns)
            storages.append(storage)
            tensors.append(TensorSlot(slot.shape, name.dtype, storage.requires_grad))
            actual.append(replace(name.actual, requires_grad=storage.requires_grad))
        return storages, tensors, actual

    def _never_made(self, slot: TensorSlot, call: Call) -> Name:
        """The result that could not be determined, else something that was there before the step."""
        actual = self.variant.source(TensorSlot(slot.shape, slot.dtype or "float32"))
        if self._untold and call.node == self._untold[-1][0].node:
            source, requires_grad = self._untold.pop()
            made = self._make(actual.num_bytes, Role.ACTIVATION, source, requires_grad=requires_grad)
        else:
            made = self._make(actual.num_bytes, Role.OUTSIDE, call, requires_grad=False)
        return self.storages.name(made, slot.shape, slot.dtype or "float32", actual=actual)

    def _results(
        self, call: Call, effect: Effect, now: Effect, storages: list[Storage], *, keeps: bool
    ) -> list[Storage]:
        """What an op returns: named by the shapes recorded, as large as it is."""
        made: list[Storage] = []
        for recorded, result in zip(effect.results, now.results, strict=True):
            if result.of_input is not None:
                storage = storages[result.of_input]
                storage.requires_grad |= keeps and storage.role is Role.ACTIVATION
            elif result.of_result is not None:
                storage = made[result.of_result]
            else:
                storage = self._make(result.num_bytes, Role.ACTIVATION, call, requires_grad=keeps)
            made.append(storage)
            actual = TensorSlot(result.shape, result.dtype)
            self.storages.name(storage, recorded.shape, recorded.dtype, actual=actual)
        return made

    def _make(self, num_bytes: int, role: Role, call: Call, *, requires_grad: bool) -> Storage:
        return self.storages.make(num_bytes, role, (call.start_ns, call.end_ns), call.name, requires_grad=requires_grad)
