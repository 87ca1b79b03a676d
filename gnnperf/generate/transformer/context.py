"""Fused attention of a rank, and what context ranks exchange around it so that queries see the whole sequence.

A context rank of n holds the i-th and the i-th last of 2 n parts of the sequence. So a causal mask leaves all ranks as
many pairs (Llama 3, section 3.3.2; Megatron-LM; torch's context_parallel). docs/concepts/plans.md has the messages.

    ring, 3 ranks   compute  |- own, causal -|- half of block 1 -|- half of block 2 -|      halves: all queries, or keys
                    context  |== block 1 ===|  |== block 2 ===|

Fused kernels exchange as TransformerEngine does (context_parallel.py): backward starts with the last block, so that the
own one comes home. Eager ones are torch's (_context_parallel/_attention.py): sums in float32, blocks copied to be sent.
"""

from collections.abc import Iterable, Iterator

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Kernels
from gnnperf.generate.transformer.items import Await, Group, Lane, Line, Record, collective, fused, op, used
from gnnperf.generate.transformer.mlp import B, Lines
from gnnperf.generate.transformer.plan import ContextExchange, TransformerPlan
from gnnperf.generate.transformer.sizes import sizes
from gnnperf.graph import Tensor

FLASH = "aten::_scaled_dot_product_flash_attention"
SHIFT = "send_recv"  # every rank to the next one
ARRIVED, RETURNED = "block arrived", "gradients of the block arrived"
Names = tuple[str, str, str]  # of queries, keys, values


def once(*names: str) -> str:
    """Each name once."""
    return " ".join(dict.fromkeys(names))


def _attended(phase: Phase, takes: str, q: Tensor, k: Tensor, makes: Iterable[str], *, causal: bool = True) -> Lines:
    """One kernel: heads, and the logarithms of sums of each row."""
    item = op(FLASH, phase, q, k, k, None, None, values=("", "", "", "0.", str(causal)))  # argument 4
    return used(item, takes, **dict(zip(makes, (q, Tensor(q.shape[:-1], "float32")), strict=True)))


def _attended_backward(takes: str, q: Tensor, k: Tensor, makes: Iterable[str], *, causal: bool = True) -> Lines:
    """(grad, q, k, v, out, logsumexp, cumulative lengths: none, longest: none, dropout, causal)."""
    rows = Tensor(q.shape[:-1], "float32")
    item = op(f"{FLASH}_backward", B, q, q, k, k, q, rows, *(None,) * 6, values=(*("",) * 10, "0.", str(causal)))
    return used(item, takes, **dict(zip(makes, (q, k, k), strict=True)))


def _copied(phase: Phase, takes: str, to: Tensor, source: Tensor, makes: str) -> Lines:
    return used(op("aten::copy_", phase, to, source), takes, **{makes: to})


def _moved(kind: str, phase: Phase, takes: str, tensor: Tensor, makes: str, made: Tensor) -> Lines:
    return used(collective(kind, Group.CONTEXT, tensor, phase), takes, **{makes: made})


class _Core:
    """Attention of a rank that has all positions."""

    def __init__(self, plan: TransformerPlan, names: Names) -> None:
        s = self.s = sizes(plan)
        self.ranks, self.eager = plan.parallelism.context, plan.block.kernels is Kernels.EAGER
        self.names, self.query, self.own = names, names[0], once(*names[1:])
        self.queries, self.keys = s.heads(s.query_heads), s.heads(s.key_heads)
        self.part, self.half = s.heads(s.query_heads, s.sequence // 2), s.heads(s.key_heads, s.sequence // 2)
        self.all_keys, self.block = s.heads(s.key_heads, self.ranks * s.sequence), s.half(2, *self.keys.shape)
        self.total = Tensor(self.queries.shape, "float32" if self.eager else s.dtype)
        self.of = {"q": self.queries, "k": self.keys, "v": self.keys}

    def forward(self, phase: Phase) -> Iterable[Line]:
        """From queries, keys and values to `heads`."""
        return _attended(phase, once(*self.names), self.queries, self.keys, ("heads", "sums"))

    def backward(self) -> Iterable[Line]:
        """From `d_heads` to `d_q`, `d_k` and `d_v`."""
        takes = once("d_heads", *self.names, "heads", "sums")
        return _attended_backward(takes, self.queries, self.keys, ("d_q", "d_k", "d_v"))


class _Ulysses(_Core):
    """All heads of a part of the sequence, or a part of the heads at all positions."""

    def forward(self, phase: Phase) -> Iterator[Line]:
        for takes, (name, tensor) in zip(self.names, self.of.items(), strict=True):
            yield from self._exchanged(phase, takes, tensor, f"all_{name}")
        yield from _attended(phase, "all_q all_k all_v", *self._by_heads(), ("all_heads", "sums"))
        yield from self._exchanged(phase, "all_heads", self.queries, "heads")

    def backward(self) -> Iterator[Line]:
        takes = "d_all_heads all_q all_k all_v all_heads sums"
        yield from self._exchanged(B, "d_heads", self.queries, "d_all_heads")
        yield from _attended_backward(takes, *self._by_heads(), ("d_all_q", "d_all_k", "d_all_v"))
        for name, tensor in self.of.items():
            yield from self._exchanged(B, f"d_all_{name}", tensor, f"d_{name}")

    def _by_heads(self) -> tuple[Tensor, Tensor]:
        s, n = self.s, self.ranks
        return s.heads(s.query_heads // n, n * s.sequence), s.heads(s.key_heads // n, n * s.sequence)

    def _exchanged(self, phase: Phase, takes: str, tensor: Tensor, makes: str) -> Iterator[Line]:
        """An all-to-all; a copy before and one after it put its parts in order."""
        yield from _copied(phase, takes, tensor, tensor, "leaving")
        yield from _moved("all_to_all", phase, "leaving", tensor, "coming", tensor)
        yield from _copied(phase, "coming", tensor, tensor, makes)


class _AllGather(_Core):
    """Keys and values of all ranks. All ranks are taken as the first, whose parts see those of one part and of all."""

    def forward(self, phase: Phase) -> Iterator[Line]:
        yield from self._gathered(phase)
        for i, keys in enumerate((self.half, self.all_keys)):
            yield from _attended(phase, f"{self.query} all_k all_v", self.part, keys, (f"part{i}", f"sums{i}"))
        yield from _copied(phase, "part0 part1", self.queries, self.queries, "heads")

    def backward(self) -> Iterator[Line]:
        yield from self._gathered(B)
        for i, keys in enumerate((self.half, self.all_keys)):
            takes = f"d_heads {self.query} all_k all_v part{i} sums{i}"
            yield from _attended_backward(takes, self.part, keys, (f"d_q{i}", f"d_k{i}", f"d_v{i}"))
        yield from _copied(B, "d_q0 d_q1", self.queries, self.queries, "d_q")
        for name in ("d_k", "d_v"):
            yield from used(op("aten::add_", B, self.half, self.half), f"{name}0 {name}1")
            yield from self._sorted(B, f"{name}1", "leaving")
            yield from _moved("reduce_scatter", B, "leaving", self.all_keys, name, self.keys)

    def _gathered(self, phase: Phase) -> Iterator[Line]:
        for name, makes in zip(self.names[1:], ("all_k", "all_v"), strict=True):
            yield from _moved("all_gather", phase, name, self.keys, "coming", self.all_keys)
            yield from self._sorted(phase, "coming", makes)

    def _sorted(self, phase: Phase, takes: str, makes: str) -> Lines:
        """Two parts of each rank in the order of positions, or the other way."""
        rows = self.s.half(2 * self.ranks, self.half.numel)
        item = op("aten::index_select", phase, rows, None, Tensor(rows.shape[:1], "int64"), values=["", "0"])
        return used(item, takes, **{makes: self.all_keys})


class _Ring(_Core):
    """Blocks of keys and values go around; each rank adds what its queries make of them."""

    def forward(self, phase: Phase) -> Iterator[Line]:
        total, first = ("merged", self.own) if self.eager else ("heads", "kv0")
        if not self.eager:
            yield from _copied(phase, self.own, self.block, self.block, first)
        for i in range(self.ranks):
            held, keys = (f"kv{i}", self.half) if i else (first, self.keys)
            yield from self._passed_on(phase, i, held, "kv")
            makes = "part", "part_sums" if i else "sums"
            yield from _attended(phase, f"{self.query} {held}", self.queries, keys, makes, causal=i == 0)
            yield from self._merged(phase) if i else _copied(phase, "part", self.total, self.queries, total)
        if self.eager:
            yield from _copied(phase, "merged", self.queries, self.total, "heads")

    def _passed_on(self, phase: Phase, i: int, held: str, makes: str) -> Iterator[Line]:
        """The block of round i has arrived, and goes on to the next rank."""
        if i:
            yield Await(Lane.COMPUTE, ARRIVED)
        if i + 1 < self.ranks:
            yield from self._sent(phase, held, self.block, ARRIVED, **{f"{makes}{i + 1}": self.block})

    def _sent(self, phase: Phase, takes: str, tensor: Tensor, event: str, **makes: Tensor) -> Iterator[Line]:
        if self.eager:
            yield from _copied(phase, takes, tensor, tensor, "leaving")
        item = collective(SHIFT, Group.CONTEXT, tensor, phase, awaited=False)
        yield from used(item, "leaving" if self.eager else takes, **makes)
        yield Record(Lane.CONTEXT, event)

    def _merged(self, phase: Phase) -> Iterator[Line]:
        """Results of all queries, as the last rank has them: weighed by the logarithms of their sums."""
        part, wide, row = self.queries, self.total, Tensor((*self.queries.shape[:-1], 1), "float32")
        if not self.eager:
            yield from used(fused("merge", phase, wide, part, row, row, wide, row), "heads part sums part_sums")
            return
        for name, tensors, takes, makes in (
            ("copy_", (wide, part), "part", "wide_part"), ("sub", (row, row), "part_sums sums", "less"),
            ("sigmoid", (row,), "less", "share"), ("sub", (wide, wide), "merged wide_part", "difference"),
            ("mul", (wide, row), "share difference", "moved"), ("sub", (wide, wide), "merged moved", "merged"),
            ("sub", (row, row), "sums part_sums", "more"), ("log_sigmoid_forward", (row,), "more", "log_share"),
            ("sub", (row, row), "sums log_share", "sums"),
        ):  # fmt: skip
            yield from used(op(f"aten::{name}", phase, *tensors), takes, **{makes: tensors[0]})

    def backward(self) -> Iterator[Line]:
        """Gradients of a block follow it around, and are added to in every round."""
        last, dtype, parts = self.ranks - 1, self.total.dtype, ("part_q", "part_k", "part_v")
        causal, moves, prefix = (0, self.ranks, "wide") if self.eager else (last, last, "d")
        block, sums = (Tensor(t.shape, dtype) for t in (self.block, self.keys))
        for i in range(self.ranks):
            held = f"d_kv{i}" if i else self.own if self.eager else f"kv{last}"
            yield from self._passed_on(B, i, held, "d_kv")
            keys, takes = self.keys if i == causal else self.half, f"d_heads {self.query} {held} heads sums"
            yield from _attended_backward(takes, self.queries, keys, parts, causal=i == causal)
            names = [f"{prefix}_{n}" if n == "q" or i == moves else f"{n}{i}" for n in "qkv"]
            if i:
                yield Await(Lane.COMPUTE, RETURNED)
            for name, part, own in zip(names, parts, (self.queries, keys, keys), strict=True):
                whole = sums if own is keys else self.total
                added = used(op("aten::add_", B, Tensor(own.shape, dtype), own), f"{name} {part}")
                yield from added if i else _copied(B, part, whole, own, name)
                if i and self.eager and own is keys:  # put together again from its halves
                    yield from _copied(B, name, whole, whole, name)
            if i < moves:
                makes = [f"{prefix}_{n}" if i + 1 == moves else f"{n}{i + 1}" for n in "kv"]
                yield from self._sent(B, " ".join(names[1:]), block, RETURNED, **dict.fromkeys(makes, sums))
        if self.eager:
            yield Await(Lane.COMPUTE, RETURNED)
            for name, to in self.of.items():
                yield from _copied(B, f"wide_{name}", to, Tensor(to.shape, dtype), f"d_{name}")


CORES = {ContextExchange.RING: _Ring, ContextExchange.ALL_GATHER: _AllGather, ContextExchange.ULYSSES: _Ulysses}


def flash(plan: TransformerPlan, names: Names) -> _Core:
    """Attention of these queries, keys and values, as the plan's context ranks exchange them."""
    ways = plan.parallelism
    return (CORES[ways.context_exchange] if ways.context > 1 else _Core)(plan, names)
