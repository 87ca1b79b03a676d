"""Which sizes hold the length of sequences: given by attention, which knows, and carried on to all other ops.

scaled_dot_product_attention   q [8,4,64,32]           64: by its place
softmax                        scores [8,4,64,64]      64: last two sizes alike
embedding                      indices [8,64]          8 samples of 64
linear                         data [512,128]          512 = 8 x 64: tokens
add                            [8,64,128] + [64,128]   a parameter laid along the sequence: a row per place
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnnperf.core import InputError, Phase
from gnnperf.generate import Shape, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch_sizes import DATA, WEIGHTS, Batch, Call, calls_of, find_batch, op_of

LENGTH_FIRST = ("_flash_attention", "_efficient_attention")  # [samples, length, heads, head]; others: heads first
INDEXED = ("embedding",)  # ops whose data are [samples, length]; data of two sizes elsewhere are [tokens, width]


@dataclass(frozen=True)
class Sequence:
    """What of a graph's sizes holds the length.

    Attributes:
        length: of a sequence.
        samples: numbers of sequences.
        tokens: sizes of dimensions that hold whole sequences one after the other: samples x length.
        by_data: sizes that data decide (tokens sent to an expert).
        heads: sizes of an attention head.
        has_scores: attention is in parts: scores [.., length, length] appear.
        positions: shapes of parameters with a row per place of the sequence.
        weights: shapes of parameters that ops take as weights.
        batch: parameters; its sizes are tokens and what data decide.
    """

    length: int
    samples: frozenset[int]
    tokens: frozenset[int]
    by_data: frozenset[int]
    heads: frozenset[int]
    has_scores: bool
    positions: frozenset[Shape]
    weights: frozenset[Shape]
    batch: Batch

    def is_shared(self, shape: Shape) -> bool:
        """Whether a shape is a table of positions in one place and a weight in another."""
        return shape in self.positions and shape in self.weights


def find_sequence(graph: ExecutionGraph, length: int | None) -> Sequence:
    """The sizes of a graph.

    Args:
        graph: with shapes.
        length: which one, where a program has several; None: its only one.

    Raises:
        InputError: no attention tells a length, several do, or none is the one that is requested.
    """
    calls, batch = calls_of(graph.nodes), find_batch(graph)
    result = sorted({size for call in calls for size in _lengths(call)})
    chosen = _chosen(graph, result, length)
    scores = any(_is_scores(call, chosen) for call in calls)
    samples = frozenset(_samples(calls, chosen)) & batch.sizes
    tokens = frozenset(size for size in batch.sizes if size % chosen == 0 and size // chosen in samples | {1})
    by_data = batch.sizes - samples - tokens
    own = replace(batch, sizes=tokens | by_data)
    heads = frozenset(size for call in calls for size in _heads(call))
    weights = frozenset(_weights(calls))
    result_positions = frozenset(_positions(calls, batch, chosen))
    return Sequence(chosen, samples, tokens, by_data, heads, scores, result_positions, weights, own)


def _chosen(graph: ExecutionGraph, result: list[int], length: int | None) -> int:
    where = f"graph {graph.name!r}"
    if length is not None and length in result:
        return length
    if length is not None or len(result) > 1:
        raise InputError(f"sequences of length {', '.join(map(str, result)) or '(none)'}", where=where,
                         allowed="one length", remedy="name it, as in {sequence:{factor:2,of:64}}")  # fmt: skip
    if not result:
        raise InputError("no attention whose shapes tell the length of a sequence", where=where,
                         allowed="a trace with the shapes of inputs, of a program with attention",
                         remedy="record with record_shapes=True")  # fmt: skip
    return result[0]


def is_attention(name: str) -> bool:
    """Whether an op is attention in one piece."""
    return "attention" in op_of(name)


def length_place(name: str) -> int:
    """The dimension, from the end, of q, k and v that is the length."""
    return -3 if op_of(name).startswith(LENGTH_FIRST) else -2


def _lengths(call: Call) -> Iterator[int]:
    name, _, arguments = call
    shapes = [shape for argument in arguments[:3] for shape in tensors(argument)]
    if is_attention(name):
        yield from (shape[length_place(name)] for shape in shapes if len(shape) > 2)
    elif "softmax" in op_of(name):
        yield from (shape[-1] for shape in shapes[:1] if len(shape) > 2 and shape[-1] == shape[-2])


def _heads(call: Call) -> Iterator[int]:
    name, _, arguments = call
    if is_attention(name):
        yield from (shape[-1] for argument in arguments[:3] for shape in tensors(argument) if len(shape) > 2)


def _is_scores(call: Call, length: int) -> bool:
    shapes = [shape for argument in call[2][:1] for shape in tensors(argument)]
    return "softmax" in op_of(call[0]) and any(len(s) > 2 and s[-2:] == (length, length) for s in shapes)


def _samples(calls: list[Call], length: int) -> Iterator[int]:
    """Sizes before a length: of indices of embeddings and of attention."""
    for name, phase, arguments in calls:
        places = DATA.get(op_of(name), ()) if phase != Phase.OPTIMIZER else ()
        if is_attention(name):
            yield from (shape[0] for argument in arguments[:3] for shape in tensors(argument) if len(shape) > 3)
        for place in places:
            for shape in tensors(arguments[place]) if place < len(arguments) else ():
                if len(shape) > (1 if op_of(name) in INDEXED else 2) and shape[1] == length:
                    yield shape[0]


def _weights(calls: list[Call]) -> Iterator[Shape]:
    for name, _, arguments in calls:
        for place in WEIGHTS.get(op_of(name), ()):
            if place < len(arguments):
                yield from tensors(arguments[place])


def _positions(calls: list[Call], batch: Batch, length: int) -> Iterator[Shape]:
    """Parameters laid along the sequence of data of higher rank, and tables with as many rows as places."""
    for name, phase, arguments in calls:
        shapes = [shape for argument in arguments for shape in tensors(argument)]
        if phase != Phase.FORWARD or not shapes:
            continue
        if op_of(name) == "embedding" and len(shapes) > 1 and shapes[0][0] == length:
            yield shapes[0]
        data = max(shapes, key=len)
        for shape in shapes:
            core = shape[1:] if shape[:1] == (1,) else shape
            fits = len(core) < len(data) and data[len(data) - len(core) :] == core and len(core) > 1
            if fits and core[0] == length and shape in batch.parameters and op_of(name) not in WEIGHTS:
                yield shape
