"""One step of one rank as a sequence of calls: ops that make tensors, nodes of the backward, gradients, optimizers.

autograd::engine::evaluate_function: AddmmBackward0 [seq 7]     Node: frees what the forward op of seq 7 saved
    AddmmBackward0 [[8,64]]                                     ... and takes this gradient
        aten::mm                                                Call: the outermost op that autograd sees as one
            aten::resolve_conj                                  inside of it
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gnnperf.core import EventKind
from gnnperf.graph import STEP_MARK, RankEvents, by_category
from gnnperf.memory.effects import is_composite
from gnnperf.memory.storages import Slot, slots_of

NODE = "autograd::engine::evaluate_function: "
_GRADIENT = "torch::autograd::AccumulateGrad"
_OPTIMIZER = "Optimizer.step"
_SUBCLASS = "PythonSubclass"  # around it shapes are those of whole DTensors, in it those of this rank
SPARSE_PARTS = ("aten::_embedding_bag_backward", "aten::_embedding_bag_sparse_backward")  # give sparse tensors
_WHOLE = ("aten::embedding_sparse_backward", _GRADIENT)
_COPIES_IN = "torch::distributed::reducer::mul_out"  # what DDP does without a hook of the program's
_COPIES = "fsdp::"  # between shards, buffers and whole parameters
_VIEW = "aten::detach"
_LEFT_OUT = ("torch::distributed::reducer", "gloo:")  # DDP fills its buckets; ranges of transfers


@dataclass(frozen=True)
class Call:
    """An event that does something to memory."""

    event: int  # row of the TraceTable
    name: str  # of the op or range
    slots: tuple[Slot, ...]  # its arguments; () unknown
    # start_ns, end_ns: of the event
    start_ns: int
    end_ns: int
    sequence: int  # autograd's number; -1 none
    node: int  # event of the backward node around it; -1 none
    inside: tuple[tuple[str, tuple[Slot, ...]], ...] = ()  # names and arguments of the ops inside of it, in order
    # whether the engine calls it, between the node's function and the next node: it sums gradients
    is_engine: bool = False

    @property
    def is_op(self) -> bool:
        """Whether it is an op that makes or takes tensors."""
        return self.name.startswith("aten::")

    @property
    def is_node(self) -> bool:
        """Whether it is a node of the backward."""
        return self.name.startswith(NODE)

    @property
    def is_gradient(self) -> bool:
        """Whether it makes a gradient final, or adds to it."""
        return self.name == _GRADIENT

    @property
    def adds(self) -> bool:
        """Whether a gradient is added to the one that is there."""
        return any(name == "aten::add_" for name, _ in self.inside)


@dataclass(frozen=True)
class StepCalls:
    """A step in order of time."""

    step: str  # name of its mark
    calls: tuple[Call, ...]  # forward, backward, and whatever else comes before the optimizer
    optimizer: tuple[Call, ...] = field(default=())  # calls of the optimizers, with those inside
    end_ns: int = 0  # of the step
    # whether DDP itself divides gradients and puts them into its buckets; a program's hook does it otherwise, and gets
    # buckets as Python's tensors
    copies_into_buckets: bool = False


def step_calls(events: RankEvents, wanted: str | None = None) -> StepCalls:
    """The step of a rank whose mark has this name, else its last one; a trace without marks is one step."""
    rows, end_ns, name = _window(events, wanted)
    reader = _Reader(events, rows)
    result = list(reader.calls(rows.tolist()))
    from_ns = min((c.start_ns for c in result if c.name.startswith(_OPTIMIZER)), default=end_ns)
    return StepCalls(
        name, tuple(c for c in result if c.start_ns < from_ns), tuple(c for c in result if c.start_ns >= from_ns),
        end_ns, reader.copies_into_buckets,
    )  # fmt: skip


def ops_digest(events: RankEvents, wanted: str | None = None) -> bytes:
    """Equal for ranks that run the same ops on the same shapes in the same order, whenever they run them."""
    rows, _, name = _window(events, wanted)
    texts = events.table.events[["kind", "name", "input_dims", "input_types", "input_values"]].iloc[rows]
    order = np.argsort(np.concatenate([events.start_ns[rows], events.end_ns[rows]]), kind="stable")
    sequence = events.column("sequence")[rows]  # numbers count from the first step of the process
    sequence = np.where(sequence < 0, -1, sequence - sequence[sequence >= 0].min(initial=np.iinfo(np.int64).max))
    thread, hashes = pd.factorize(events.thread[rows])[0], pd.util.hash_pandas_object(texts, index=False).to_numpy()
    parts = [name.encode(), *(part.tobytes() for part in (thread, hashes, order, sequence))]
    return hashlib.sha256(b"".join(parts)).digest()


def _window(events: RankEvents, wanted: str | None) -> tuple[np.ndarray, int, str]:
    """([n] the host events of the step, its end, its name)."""
    marks = np.flatnonzero(by_category(events.table.events["name"], lambda name: bool(STEP_MARK.match(name)), bool))
    start_ns, end_ns, name = int(events.start_ns.min()), int(events.end_ns.max()), "window"
    if len(marks):
        last = next((i for i in marks if events.name[i] == wanted), marks[-1])
        start_ns, end_ns, name = int(events.start_ns[last]), int(events.end_ns[last]), str(events.name[last])
    is_host = (events.thread >= 0) & ~events.is_kind(EventKind.RUNTIME)
    within = (events.start_ns >= start_ns) & (events.end_ns <= end_ns) & is_host
    return np.flatnonzero(within), end_ns, name


class _Reader:
    """Texts of one rank's events -> calls of some rows [n]."""

    def __init__(self, events: RankEvents, rows: np.ndarray) -> None:
        self._events = events
        self._texts = [events.column(name) for name in ("input_dims", "input_types", "input_values")]
        self._sequence = events.column("sequence")
        self.copies_into_buckets = False
        self._children: dict[int, list[int]] = {}
        is_within = np.append(events.is_kind(EventKind.RUNTIME), False)  # the last: no parent
        is_within[rows] = True
        inside = np.flatnonzero(is_within[events.parent])
        for row, parent in zip(inside.tolist(), events.parent[inside].tolist(), strict=True):
            self._children.setdefault(parent, []).append(row)

    def calls(self, rows: list[int]) -> Iterator[Call]:
        """Of these events those that count; what is inside an op that autograd sees as one is a part of it."""
        hidden: set[int] = set()
        node_of, number_of = {-1: -1}, {-1: -1}
        for row in rows:
            name, parent = str(self._events.name[row]), int(self._events.parent[row])
            if parent in hidden or name.startswith(_LEFT_OUT):
                hidden.add(row)
                self.copies_into_buckets |= name.startswith(_COPIES_IN)
                continue
            node_of[row] = row if name.startswith(NODE) else node_of.get(parent, -1)
            inherits = self._sequence[row] < 0 and self._events.name[parent] == _SUBCLASS
            number_of[row] = number_of.get(parent, -1) if inherits or name == _SUBCLASS else int(self._sequence[row])
            if name in _WHOLE or name.startswith(_COPIES) or self._is_one(row, name):
                hidden.add(row)
                yield self._call(row, name, number_of[row], node_of[row], tuple(self._inside(row)))
            elif name in SPARSE_PARTS or (not name.startswith("aten::") and name != _SUBCLASS):
                yield self._call(row, name, number_of[row], node_of[row])

    def _is_one(self, row: int, name: str) -> bool:
        is_op = self._events.is_op[row] and name not in SPARSE_PARTS
        if not is_op or is_composite(name) is not False:
            return False
        return not any(self._events.name[c] == _SUBCLASS for c in self._children.get(row, ()))

    def _call(
        self, row: int, name: str, number: int, node: int, inside: tuple[tuple[str, tuple[Slot, ...]], ...] = ()
    ) -> Call:
        return Call(row, name, self._slots(row), int(self._events.start_ns[row]), int(self._events.end_ns[row]),
                    number, node, inside, int(self._events.parent[row]) == node >= 0)  # fmt: skip

    def _slots(self, row: int) -> tuple[Slot, ...]:
        return slots_of(str(self._events.name[row]), *(texts[row] for texts in self._texts))

    def _inside(self, row: int) -> Iterator[tuple[str, tuple[Slot, ...]]]:
        for child in self._children.get(row, ()):
            yield str(self._events.name[child]), self._slots(child)
            if self._events.name[child] != _VIEW:  # where tensors hold no data, it is called to point elsewhere
                yield from self._inside(child)
