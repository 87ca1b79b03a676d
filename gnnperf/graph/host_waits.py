"""Where a program waits for collectives that run on host threads. Traces do not record the wait itself.

c10d::allreduce_ (asyncOp False) |T1 waits|                               the call states that it waits at once
c10d::alltoall_base_ (async)     |T1| mm |T1| add |T1 waits| view of what was received
                                  no      no                  a wait that ends before the collective did is none

What cannot be read off the trace is decided for all steps and ranks together: of the places where the result may be
needed, the first that no recording refutes. Order by itself decides, never a distance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgspec
import numpy as np

from gnnperf.core import Segment, schema
from gnnperf.graph.event_columns import RankEvents, by_category, is_dispatcher_op
from gnnperf.graph.host import Pieces
from gnnperf.graph.works import Works, is_direct

# Which ops may use what a collective returns: those that take a tensor of its shape, or of its size.

Shape = tuple[int, ...]

_FIRST = 3  # uses that are looked at


class Uses:
    """Which ops take tensors like a collective's result: of its shape, or, where none does, of as many elements."""

    def __init__(self, events: RankEvents, pieces: Pieces, t1: np.ndarray, step: np.ndarray) -> None:
        dims = events.table.events["input_dims"]
        self._codes = schema.codes_of(dims)
        self._arguments = [msgspec.json.decode(text) for text in schema.categories_of(dims)]
        self._by_shape = [set(_tensors(arguments)) for arguments in self._arguments]
        self._by_size = [{prod(shape) for shape in shapes} for shapes in self._by_shape]
        names = events.table.events["name"]
        uses = ~by_category(names, lambda n: n.startswith("c10d::") or "empty" in n or "_like" in n, bool)
        op = np.flatnonzero(~t1 & (pieces.op >= 0))
        self._pieces = op[uses[pieces.op[op]] & (self._codes[pieces.op[op]] >= 0)]
        self._of_piece, self._step = self._codes[pieces.op[self._pieces]], step
        self._result: dict[frozenset[Any], np.ndarray] = {}

    def sizes(self, event: int) -> set[int]:
        """Numbers of elements of an event's tensors."""
        code = self._codes[event]
        return self._by_size[code] if code >= 0 else set()

    def results(self, op: int) -> set[Shape]:
        """Shapes of what a collective's op returns: its first argument that has a shape, or the tensors in it."""
        code = self._codes[op]
        arguments = self._arguments[code] if code >= 0 else []
        return set(_tensors(next((a for a in arguments if a), [])))

    def after(self, op: int, issuer: int) -> list[int]:
        """The first pieces after an issue, in its step, that take something like the result."""
        results = self.results(op)
        for wanted, known in ((results, self._by_shape), ({prod(shape) for shape in results}, self._by_size)):
            outcome = self._taking(frozenset(wanted), known)
            outcome = outcome[np.searchsorted(outcome, issuer, side="right") :][:_FIRST]
            outcome = outcome[self._step[outcome] == self._step[issuer]]
            if len(outcome):
                return outcome.tolist()
        return []

    def _taking(self, wanted: frozenset[Any], known: Sequence[set[Any]]) -> np.ndarray:
        """Pieces whose op takes one of these shapes, or sizes."""
        if wanted not in self._result:
            matching = np.array([not wanted.isdisjoint(of_text) for of_text in known], dtype=bool)
            self._result[wanted] = self._pieces[matching[self._of_piece]] if len(matching) else self._pieces[:0]
        return self._result[wanted]


def _tensors(arguments: object) -> Iterator[Shape]:
    """The shapes in an op's arguments, lists of tensors included; scalars have none."""
    if not isinstance(arguments, list) or not arguments:
        return
    if all(isinstance(d, (int, float)) for d in arguments):
        yield tuple(int(d) for d in arguments)
        return
    for part in arguments:
        yield from _tensors(part)


# Where DDP waits for its buckets of gradients.
#
# main    |AccumulateGrad: c10d::allreduce_| more backward ... | T1 ·waiting·| as_strided | T1 ·waiting·| as_strided
# worker                     |------ gloo:all_reduce ------------------------|
# worker                                  |------------- gloo:all_reduce ---------------------------|


class Buckets:
    """DDP waits when backward ends, bucket after bucket, and unpacks each as soon as it is there.

    A bucket of n elements is awaited before the first `aten::as_strided [[n], ...]` of those that unpack it. `place` is
    called in the order in which buckets were issued.
    """

    def __init__(self, events: RankEvents, pieces: Pieces) -> None:
        self._dims = events.column("input_dims")
        self._t1 = np.flatnonzero(pieces.is_segment(Segment.T1))
        self._leaves = self._t1[_leaves_backward(events, pieces, self._t1)]
        self._views = _unpacking(events, pieces, self._t1, self._dims)
        self._taken: dict[str, int] = {}  # the last place where a bucket of these dims is unpacked

    def place(self, work_event: int, issuer: int) -> np.ndarray:
        """The gap that waits for a bucket."""
        left = _next(self._leaves, issuer)
        if left is None:
            return np.zeros(0, dtype=np.int64)
        bucket = _bucket(self._dims[work_event])
        views = self._views.get(bucket, self._leaves[:0])
        place = _next(views, max(left, self._taken.get(bucket, -1) + 1))
        if place is not None:
            self._taken[bucket] = place
        return np.array([left if place is None else place])


def _next(positions: np.ndarray, at_least: int) -> int | None:
    """The first position not before `at_least`."""
    slot = int(np.searchsorted(positions, at_least))
    return int(positions[slot]) if slot < len(positions) else None


def _unpacking(events: RankEvents, pieces: Pieces, t1: np.ndarray, dims: np.ndarray) -> dict[str, np.ndarray]:
    """Bucket -> gaps before unpacking one of its size begins: the first of consecutive views into it."""
    op = pieces.op[t1]
    views = np.flatnonzero((op >= 0) & (events.name[op] == "aten::as_strided"))
    bucket = np.array([_bucket(d) for d in dims[op[views]].tolist()], dtype=object)
    begins = np.ones(len(views), dtype=bool)
    begins[1:] = (views[1:] != views[:-1] + 1) | (bucket[1:] != bucket[:-1])
    return {str(b): t1[views[begins & (bucket == b)]] for b in set(bucket.tolist())}


def _bucket(dims: str | None) -> str:
    """`[[n]` of the shapes of a collective of n elements, `[[n]]`, and of a view into it, `[[n],[],[]]`."""
    return str(dims).split("]")[0] + "]"


def _leaves_backward(events: RankEvents, pieces: Pieces, t1: np.ndarray) -> np.ndarray:
    """[num_t1] bool: the piece before belongs to autograd, the piece after does not."""
    engine = by_category(events.table.events["name"], lambda n: n.startswith("autograd::engine"), bool)
    owner = np.where(pieces.op >= 0, pieces.op, 0)
    scope, inside = owner.copy(), np.zeros(len(owner), dtype=bool)
    for _ in range(16):
        inside |= (scope >= 0) & engine[scope]
        scope = np.where(scope >= 0, events.parent[scope], -1)
    inside &= pieces.op >= 0
    previous = np.maximum(t1 - 1, 0)
    return inside[previous] & ~inside[t1]


_ASYNC_ARGUMENT = -2  # of c10d ops: (..., asyncOp, timeout)
# Share of recordings in which a collective must have ended where it is awaited. DDP's futures and early versions wake
# who waits before they close the range, and a worker may be preempted in between; `Work.wait` returns after that.
_CERTAIN, _LIKELY, _POSSIBLE = 0.0, 0.5, 1.0


@dataclass(frozen=True)
class Options:
    """Where each of one rank's collectives may be waited for."""

    work: np.ndarray  # [n] number of the work
    issuer: np.ndarray  # [n] piece of the op that issued it
    places: tuple[np.ndarray, ...]  # n arrays of pieces, in order; at the first that holds, it is waited for
    needed: np.ndarray  # [n] share of recordings in which a place must hold
    program: np.ndarray  # [n] hash of what the rank issues in that step, and of how many before this one


def options(events: RankEvents, pieces: Pieces, works: Works, step: np.ndarray) -> Options:
    """The places where each collective of a rank may be waited for; `step` is [num_pieces]."""
    piece_of = np.full(len(events.op), -1, dtype=np.int64)
    whole = np.flatnonzero((pieces.op >= 0) & ~pieces.is_segment(Segment.T1))
    piece_of[pieces.op[whole]] = whole
    work = np.flatnonzero(works.op >= 0)
    issuer = piece_of[events.op[works.op[work]]]
    work, issuer = work[issuer >= 0], issuer[issuer >= 0]
    order = np.argsort(issuer, kind="stable")
    work, issuer = work[order], issuer[order]
    search = _Search(events, pieces, works, step)
    outcome = [search.places(w, p) for w, p in zip(work.tolist(), issuer.tolist(), strict=True)]
    places, needed = tuple(place for place, _ in outcome), np.array([share for _, share in outcome])
    return Options(work, issuer, places, needed, _program(events.name[works.op[work]], step[issuer]))


def choose(ranks: Sequence[Options], ends: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Per rank [n] the piece that waits for each collective; -1 none.

    `ends` holds per rank the ends of works [num_works] and pieces [num_pieces] in ns.
    """
    votes: dict[int, list[tuple[np.ndarray, float]]] = {}
    for rank, (work_end, piece_end) in zip(ranks, ends, strict=True):
        for i, place in enumerate(rank.places):
            held = piece_end[place] >= work_end[rank.work[i]]
            votes.setdefault(int(rank.program[i]), []).append((held, float(rank.needed[i])))
    first = {program: _first_that_holds(flags) for program, flags in votes.items()}
    return [
        np.array([place[first[p]] if len(place) > first[p] >= 0 else -1
                  for p, place in zip(r.program.tolist(), r.places, strict=True)], dtype=np.int64)
        for r in ranks
    ]  # fmt: skip


def _first_that_holds(votes: Sequence[tuple[np.ndarray, float]]) -> int:
    """Number of the first option that holds in enough recordings; -1 none."""
    count = min(len(held) for held, _ in votes)
    if not count:
        return -1
    share = np.mean([held[:count] for held, _ in votes], axis=0)
    enough = share >= max(needed for _, needed in votes)
    return int(np.argmax(enough)) if enough.any() else -1


def _program(names: np.ndarray, step: np.ndarray) -> np.ndarray:
    """[n] hash of the names issued in the same step, and of the position among them."""
    result = np.zeros(len(names), dtype=np.int64)
    for number in np.unique(step).tolist():
        mine = np.flatnonzero(step == number)
        whole = tuple(names[mine].tolist())
        result[mine] = [hash((whole, k)) for k in range(len(mine))]
    return result


class _Search:
    """Looks through one rank's main thread for places where it may wait."""

    def __init__(self, events: RankEvents, pieces: Pieces, works: Works, step: np.ndarray) -> None:
        self.events, self.pieces, self.works = events, pieces, works
        self.names = np.where(pieces.op >= 0, events.name[pieces.op], "")
        t1 = pieces.is_segment(Segment.T1)
        bare = ~by_category(events.table.events["name"], is_dispatcher_op, bool)
        self.may_wait = t1 | ((pieces.op >= 0) & bare[pieces.op])  # [num_pieces] a gap, or a range of Python code
        self.hook = by_category(events.table.events["name"], lambda n: "AccumulateGrad" in n, bool)
        self.functional = by_category(events.table.events["name"], lambda n: n.startswith("_c10d_functional"), bool)
        self.asynchronous = by_category(events.table.events["input_values"], _async_argument, object)
        self.direct = is_direct(events, works)
        self.buckets = Buckets(events, pieces)
        self.uses = Uses(events, pieces, t1, step)
        self.waits = np.flatnonzero(~t1 & np.char.endswith(self.names.astype(str), "::wait_tensor"))
        self.taken: set[int] = set()

    def places(self, work: int, issuer: int) -> tuple[np.ndarray, float]:
        """Pieces that may wait for a work, in order, and the share of recordings in which one must hold."""
        op = int(self.works.op[work])
        if self.direct[work]:
            return self._ends_in(work, issuer), _CERTAIN
        if self.asynchronous[op] is False:
            return self._after(issuer), _CERTAIN
        if self._inside(op, self.functional):
            return self._wait_tensor(op, issuer), _CERTAIN
        if self._inside(op, self.hook):
            return self.buckets.place(int(self.works.event[work]), issuer), _LIKELY
        places = [self._after(issuer), *(self._run_before(use) for use in self.uses.after(op, issuer))]
        return np.concatenate(places), _POSSIBLE if self.asynchronous[op] else _LIKELY

    def _after(self, issuer: int) -> np.ndarray:
        """The next piece of the same thread."""
        thread, piece = self.pieces.thread, issuer + 1
        return np.array([piece] if piece < len(thread) and thread[piece] == thread[issuer] else [], dtype=np.int64)

    def _inside(self, op: int, flag: np.ndarray) -> bool:
        """Whether an event or one around it is flagged."""
        while op >= 0:
            if flag[op]:
                return True
            op = int(self.events.parent[op])
        return False

    def _ends_in(self, work: int, issuer: int) -> np.ndarray:
        """The piece in which the range of a send or receive ends: its own thread closes it when it has waited."""
        on_thread = np.flatnonzero(self.pieces.thread == self.pieces.thread[issuer])
        end = self.works.end_ns[work]
        slot = int(np.searchsorted(self.pieces.end_ns[on_thread], end, side="left"))
        outcome = on_thread[slot : slot + 1]
        return outcome[self.may_wait[outcome] & (self.pieces.begin_ns[outcome] < end)]

    def _wait_tensor(self, op: int, issuer: int) -> np.ndarray:
        """The next wait for a tensor of this size that waits for nothing else yet."""
        wanted = {prod(shape) for shape in self.uses.results(op)}
        for piece in self.waits[np.searchsorted(self.waits, issuer) :].tolist():
            if piece not in self.taken and self.uses.sizes(int(self.pieces.op[piece])) & wanted:
                self.taken.add(piece)
                return np.array([piece])
        return np.zeros(0, dtype=np.int64)

    def _run_before(self, use: int) -> np.ndarray:
        """The pieces directly before an op in which a program may wait."""
        first = use
        while first > 0 and self.may_wait[first - 1] and self.pieces.thread[first - 1] == self.pieces.thread[use]:
            first -= 1
        return np.arange(first, use)


def _async_argument(values: str) -> bool | None:
    """Whether a c10d op was instructed not to wait; None unknown."""
    try:
        return {"True": True, "False": False}.get(msgspec.json.decode(values)[_ASYNC_ARGUMENT])
    except (msgspec.DecodeError, IndexError, TypeError):
        return None
