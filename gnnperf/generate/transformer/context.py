"""Fused attention of a rank, and what context ranks exchange around it so that queries see the whole sequence.

Of S positions a context rank of n has S / n = L, as two parts of 2 n: the i-th and the i-th from the end, so that a
causal mask leaves each rank the same S (S + 1) / 2 n pairs (Llama 3, section 3.3.2; Megatron-LM; torch's
context_parallel).

            bytes that a rank sends, of K for keys, K for values and Q for queries of its L positions
            forward                 backward
ring        2 (n - 1) K             2 (n - 1) K, and as many gradients: with eager kernels n rounds, in float32
all-gather  2 (n - 1) K             2 (n - 1) K, and 2 (n - 1) K of gradients scattered
Ulysses     2 (Q + K) (n - 1) / n   as many

Ring, one round per rank; round 0 has the rank's own positions under the mask, all others half of the pairs of a block:

    compute  |- attention 0 -|- attention 1 -|- attention 2 -|merge|
    context  |= block 1 ====||= block 2 ====|

In a round a rank before the block's owner has half of its queries, one after it half of the keys. All rounds are taken
as those of the last rank, which merges results of all its queries.

Fused kernels are those of TransformerEngine (context_parallel.py): results of all rounds are held, merged at the end;
backward starts with the last block, so that the own one comes home. Eager ones are torch's
(_context_parallel/_attention.py): sums in float32, blocks copied side by side before they leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Kernels
from gnnperf.generate.transformer.items import Await, Group, Lane, Line, Record, collective, fused, op, used
from gnnperf.generate.transformer.mlp import FLOAT_BYTES, B, Lines
from gnnperf.generate.transformer.plan import ContextExchange, TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor

FLASH = "aten::_scaled_dot_product_flash_attention"
SHIFT = "send_recv"  # every rank to the next one
ARRIVED, RETURNED = "block arrived", "gradients of the block arrived"
Names = tuple[str, str, str]  # of queries, keys, values


def flash(plan: TransformerPlan, phase: Phase, names: Names) -> Lines:
    """From queries, keys and values to `heads`."""
    s = sizes(plan)
    if plan.parallelism.context > 1:
        return tuple(FORWARD[plan.parallelism.context_exchange](plan, phase, names))
    return _attended(phase, once(*names), s.heads(s.query_heads), s.heads(s.key_heads))


def flash_backward(plan: TransformerPlan, names: Names) -> Lines:
    """From `d_heads` to `d_q`, `d_k` and `d_v`."""
    s = sizes(plan)
    if plan.parallelism.context > 1:
        return tuple(BACKWARD[plan.parallelism.context_exchange](plan, names))
    q, k = s.heads(s.query_heads), s.heads(s.key_heads)
    return _attended_backward(once("d_heads", *names, "heads", "sums"), q, k, d_q=q, d_k=k, d_v=k)


def once(*names: str) -> str:
    """Each name once."""
    return " ".join(dict.fromkeys(names))


def _attended(
    phase: Phase, takes: str, q: Tensor, k: Tensor, *, causal: bool = True, makes: tuple[str, str] = ("heads", "sums")
) -> Lines:  # fmt: skip
    """One kernel: heads, and the logarithms of sums of each row."""
    item = op(FLASH, phase, q, k, k, None, None, values=("", "", "", "0.", str(causal)))  # argument 4
    return used(item, takes, **{makes[0]: q, makes[1]: q.numel // q.shape[-1] * FLOAT_BYTES})


def _attended_backward(takes: str, q: Tensor, k: Tensor, *, causal: bool = True, **makes: Tensor) -> Lines:
    """(grad, q, k, v, out, logsumexp, cumulative lengths: none, longest: none, dropout, causal)."""
    rows = Tensor(q.shape[:-1], "float32")
    values = (*("",) * 10, "0.", str(causal))  # argument 11
    return used(op(f"{FLASH}_backward", B, q, q, k, k, q, rows, *(None,) * 6, values=values), takes, **makes)


def _copied(phase: Phase, takes: str, to: Tensor, source: Tensor, *makes: str) -> Lines:
    return used(op("aten::copy_", phase, to, source), takes, **dict.fromkeys(makes, to))


def _added(takes: str, to: Tensor, source: Tensor) -> Lines:
    return used(op("aten::add_", B, to, source), takes)


def _exchanged(phase: Phase, takes: str, tensor: Tensor, makes: str) -> Lines:
    """An all-to-all from parts of the sequence to heads or back, its sides put in order by a copy each."""
    return (
        *_copied(phase, takes, tensor, tensor, "leaving"),
        *used(collective("all_to_all", Group.CONTEXT, tensor, phase), "leaving", coming=tensor),
        *_copied(phase, "coming", tensor, tensor, makes),
    )


def _ulysses(plan: TransformerPlan, phase: Phase, names: Names) -> Iterator[Line]:
    s = sizes(plan)
    q, k, *all_ = _by_heads(plan, s)
    for name, tensor, makes in zip(names, (q, k, k), ("all_q", "all_k", "all_v"), strict=True):
        yield from _exchanged(phase, name, tensor, makes)
    yield from _attended(phase, "all_q all_k all_v", *all_, makes=("all_heads", "sums"))
    yield from _exchanged(phase, "all_heads", q, "heads")


def _ulysses_backward(plan: TransformerPlan, _: Names) -> Iterator[Line]:
    s = sizes(plan)
    q, k, all_q, all_k = _by_heads(plan, s)
    yield from _exchanged(B, "d_heads", q, "d_all_heads")
    takes = "d_all_heads all_q all_k all_v all_heads sums"
    yield from _attended_backward(takes, all_q, all_k, d_all_q=all_q, d_all_k=all_k, d_all_v=all_k)
    for name, tensor in (("q", q), ("k", k), ("v", k)):
        yield from _exchanged(B, f"d_all_{name}", tensor, f"d_{name}")


def _by_heads(plan: TransformerPlan, s: Sizes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries and keys of all heads at a rank's positions, and of its heads at all positions."""
    n, numbers = plan.parallelism.context, (s.query_heads, s.key_heads)
    here, there = (s.heads(number) for number in numbers), (s.heads(m // n, n * s.sequence) for m in numbers)
    return (*here, *there)


# All-gather: a rank's first part of the sequence sees few keys, its second one many; all are taken as the first rank,
# whose parts see the keys of one part and of the whole sequence. Copies put the parts in the order of positions.


def _gathered(plan: TransformerPlan, phase: Phase, takes: str, makes: str) -> Lines:
    """Keys or values of all ranks."""
    keys, whole = _gathered_sizes(plan)[1:]
    gather = used(collective("all_gather", Group.CONTEXT, keys, phase), takes, coming=whole)
    return (*gather, *_sorted(plan, phase, "coming", whole, makes))


def _sorted(plan: TransformerPlan, phase: Phase, takes: str, whole: Tensor, makes: str) -> Lines:
    parts = 2 * plan.parallelism.context
    rows = Tensor((parts, whole.numel // parts), whole.dtype), None, Tensor((parts,), "int64")
    return used(op("aten::index_select", phase, *rows, values=["", "0"]), takes, **{makes: whole})


def _gathered_sizes(plan: TransformerPlan) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of a part, keys of a rank, keys of all."""
    s, n = sizes(plan), plan.parallelism.context
    return s.heads(s.query_heads, s.sequence // 2), s.heads(s.key_heads), s.heads(s.key_heads, n * s.sequence)


def _all_gather(plan: TransformerPlan, phase: Phase, names: Names) -> Iterator[Line]:
    s, (q, _, whole) = sizes(plan), _gathered_sizes(plan)
    for name, makes in zip(names[1:], ("all_k", "all_v"), strict=True):
        yield from _gathered(plan, phase, name, makes)
    for i, keys in enumerate((s.heads(s.key_heads, s.sequence // 2), whole)):
        yield from _attended(phase, f"{names[0]} all_k all_v", q, keys, makes=(f"heads{i}", f"sums{i}"))
    yield from _copied(phase, "heads0 heads1", s.heads(s.query_heads), s.heads(s.query_heads), "heads")


def _all_gather_backward(plan: TransformerPlan, names: Names) -> Iterator[Line]:
    s, (q, _, whole) = sizes(plan), _gathered_sizes(plan)
    part, queries = s.heads(s.key_heads, s.sequence // 2), s.heads(s.query_heads)
    for name, makes in zip(names[1:], ("again_k", "again_v"), strict=True):
        yield from _gathered(plan, B, name, makes)
    for i, keys in enumerate((part, whole)):
        takes = f"d_heads {names[0]} again_k again_v heads{i} sums{i}"
        yield from _attended_backward(takes, q, keys, **{f"d_q{i}": q, f"d_k{i}": keys, f"d_v{i}": keys})
    yield from _copied(B, "d_q0 d_q1", queries, queries, "d_q")
    for name in ("d_k", "d_v"):
        yield from _added(f"{name}0 {name}1", part, part)
        yield from _sorted(plan, B, f"{name}1", whole, "leaving")
        scattered = collective("reduce_scatter", Group.CONTEXT, whole, B)
        yield from used(scattered, "leaving", **{name: s.heads(s.key_heads)})


class _Ring:
    """Blocks of keys and values go around; each rank adds what its queries make of them."""

    def __init__(self, plan: TransformerPlan, names: Names) -> None:
        s = sizes(plan)
        self.query, self.own, self.ranks = names[0], once(*names[1:]), plan.parallelism.context
        self.eager = plan.block.kernels is Kernels.EAGER
        self.queries, self.keys = s.heads(s.query_heads), s.heads(s.key_heads)
        self.half = s.heads(s.key_heads, s.sequence // 2)
        self.block = s.half(2, *self.keys.shape)
        self.wide = Tensor(self.queries.shape, "float32")
        self.row = Tensor((*self.queries.shape[:-1], 1), "float32")

    def forward(self, phase: Phase) -> Iterator[Line]:
        """Rounds, merged by the logarithms of sums: eager ones one by one in float32, fused ones after the last."""
        own = self.own if self.eager else "kv0"
        if not self.eager:
            yield from _copied(phase, self.own, self.block, self.block, own)
        for i in range(self.ranks):
            held, number = f"kv{i}" if i else own, "" if self.eager else str(i)
            yield from self._passed_on(phase, i, held, "kv")
            keys, makes = self.half if i else self.keys, (f"part{number}", f"part_sums{number}" if i else "sums")
            yield from _attended(phase, f"{self.query} {held}", self.queries, keys, causal=i == 0, makes=makes)
            if self.eager:
                yield from self._merged(phase) if i else _copied(phase, "part", self.wide, self.queries, "merged")
            elif i:
                yield from used(fused("merge_sums", phase, *(self.row,) * 3), f"sums part_sums{i}")
        if self.eager:
            yield from _copied(phase, "merged", self.queries, self.wide, "heads")
            return
        for i in range(self.ranks):  # until then buffers of all blocks are held
            buffers, makes_ = (self.queries,) * (3 if i else 2), {} if i else {"heads": self.queries}
            takes = f"heads part{i} sums part_sums{i} kv{i}" if i else "part0 sums kv0"
            yield from used(fused("merge", phase, *buffers, self.row, self.row), takes, **makes_)

    def _passed_on(self, phase: Phase, i: int, held: str, makes: str) -> Iterator[Line]:
        """The block of round i has arrived, and goes on to the next rank."""
        if i:
            yield Await(Lane.COMPUTE, ARRIVED)
        if i + 1 == self.ranks:
            return
        if self.eager:
            yield from _copied(phase, held, self.block, self.block, "leaving")
        sent = collective(SHIFT, Group.CONTEXT, self.block, phase, awaited=False)
        yield from used(sent, "leaving" if self.eager else held, **{f"{makes}{i + 1}": self.block})
        yield Record(Lane.CONTEXT, ARRIVED)

    def _merged(self, phase: Phase) -> Iterator[Line]:
        part, wide, row = self.queries, self.wide, self.row
        for name, tensors, takes, makes in (
            ("copy_", (wide, part), "part", "wide_part"), ("sub", (row, row), "part_sums sums", "less"),
            ("sigmoid", (row,), "less", "share"), ("sub", (wide, wide), "merged wide_part", "difference"),
            ("mul", (wide, row), "share difference", "moved"), ("sub", (wide, wide), "merged moved", "merged"),
            ("sub", (row, row), "sums part_sums", "more"), ("log_sigmoid_forward", (row,), "more", "log_share"),
            ("sub", (row, row), "sums log_share", "sums"),
        ):  # fmt: skip
            yield from used(op(f"aten::{name}", phase, *tensors), takes, **{makes: tensors[0]})

    def backward(self) -> Iterator[Line]:
        """Rounds; gradients of a block follow it around, and are added to in every round."""
        last, dtype = self.ranks - 1, "float32" if self.eager else self.queries.dtype
        own, moves, prefix = (0, self.ranks, "wide") if self.eager else (last, last, "d")
        moved, sums = Tensor(self.block.shape, dtype), Tensor(self.keys.shape, dtype)
        for i in range(self.ranks):
            held = f"d_kv{i}" if i else self.own if self.eager else f"kv{last}"
            yield from self._passed_on(B, i, held, "d_kv")
            keys, takes = self.keys if i == own else self.half, f"d_heads {self.query} {held} heads sums"
            parts = {"part_q": self.queries, "part_k": keys, "part_v": keys}
            yield from _attended_backward(takes, self.queries, keys, causal=i == own, **parts)
            totals = [f"{prefix}_{n}" if n == "q" or i == moves else f"{n}{i}" for n in "qkv"]
            if i:
                yield Await(Lane.COMPUTE, RETURNED)
            for total, (name, part) in zip(totals, parts.items(), strict=True):
                to = Tensor((part if i else self.queries if part is self.queries else self.keys).shape, dtype)
                yield from _added(f"{total} {name}", to, part) if i else _copied(B, name, to, part, total)
            if i == moves:
                continue
            if self.eager:
                yield from _copied(B, " ".join(totals[1:]), moved, moved, "leaving")
            sent, makes = collective(SHIFT, Group.CONTEXT, moved, B, awaited=False), [f"{n}{i + 1}" for n in "kv"]
            makes = [f"{prefix}_k", f"{prefix}_v"] if i + 1 == moves else makes
            yield from used(sent, "leaving" if self.eager else " ".join(totals[1:]), **dict.fromkeys(makes, sums))
            yield Record(Lane.CONTEXT, RETURNED)
        if self.eager:
            yield Await(Lane.COMPUTE, RETURNED)
            for name, tensor in (("q", self.queries), ("k", self.keys), ("v", self.keys)):
                yield from _copied(B, f"wide_{name}", tensor, Tensor(tensor.shape, dtype), f"d_{name}")


FORWARD: dict[ContextExchange, Callable[[TransformerPlan, Phase, Names], Iterable[Line]]] = {
    ContextExchange.RING: lambda plan, phase, names: _Ring(plan, names).forward(phase),
    ContextExchange.ALL_GATHER: _all_gather,
    ContextExchange.ULYSSES: _ulysses,
}
BACKWARD: dict[ContextExchange, Callable[[TransformerPlan, Names], Iterable[Line]]] = {
    ContextExchange.RING: lambda plan, names: _Ring(plan, names).backward(),
    ContextExchange.ALL_GATHER: _all_gather_backward,
    ContextExchange.ULYSSES: _ulysses_backward,
}
