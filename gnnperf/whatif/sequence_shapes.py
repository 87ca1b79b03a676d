"""Which sizes hold the length of sequences, given by attention; and the shapes of a call with another length.

scaled_dot_product_attention   q [8,4,64,32]           64: by its place
softmax                        scores [8,4,64,64]      64: last two sizes alike
embedding                      indices [8,64]          8 samples of 64
linear                         data [512,128]          512 = 8 x 64: tokens
add                            [8,64,128] + [64,128]   a parameter laid along the sequence: a row per place
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnnperf.core import InputError, Phase
from gnnperf.generate import Argument, Shape, each, is_list, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.batch_shapes import (
    DATA,
    WEIGHTS,
    Batch,
    Call,
    Rescaled,
    all_shapes,
    calls_of,
    find_batch,
    is_product,
    op_of,
    scale_call,
)

LENGTH_FIRST = ("_flash_attention", "_efficient_attention")  # [samples, length, heads, head]; others: heads first
INDEXED = ("embedding",)  # ops whose data are [samples, length]; data of two sizes elsewhere are [tokens, width]


@dataclass(frozen=True)
class Sequence:
    """What of a graph's sizes holds the length."""

    length: int  # of a sequence
    samples: frozenset[int]  # numbers of sequences
    tokens: frozenset[int]  # sizes of dimensions that hold whole sequences one after the other: samples x length
    by_data: frozenset[int]  # sizes that data decide (tokens sent to an expert)
    heads: frozenset[int]  # sizes of an attention head
    has_scores: bool  # attention is in parts: scores [.., length, length] appear
    positions: frozenset[Shape]  # shapes of parameters with a row per place of the sequence
    weights: frozenset[Shape]  # shapes of parameters that ops take as weights
    batch: Batch  # parameters; its sizes are tokens and what data decide

    def is_shared(self, shape: Shape) -> bool:
        """Whether a shape is a table of positions in one place and a weight in another."""
        return shape in self.positions and shape in self.weights


def find_sequence(graph: ExecutionGraph, length: int | None) -> Sequence:
    """The sizes of a graph.

    `length`: which one, where a program has several; None: its only one. Raises InputError: no attention shows a
    length, several do, or none is the one that is requested.
    """
    calls, batch = calls_of(graph.nodes), find_batch(graph)
    result = sorted({size for call in calls for size in _lengths(call)})
    where = f"graph {graph.name!r}"
    if len(result) > 1 if length is None else length not in result:
        raise InputError(f"sequences of length {', '.join(map(str, result)) or '(none)'}", where=where,
                         allowed="one length", remedy="name it, as in {sequence:{factor:2,of:64}}")  # fmt: skip
    if not result:
        raise InputError("no attention whose shapes tell the length of a sequence", where=where,
                         allowed="a trace with the shapes of inputs, of a program with attention",
                         remedy="record with record_shapes=True")  # fmt: skip
    chosen = length or result[0]
    squares = [s for call in calls if "softmax" in op_of(call[0]) for s in all_shapes(call[2][:1]) if len(s) > 2]
    scores = any(shape[-2:] == (chosen, chosen) for shape in squares)
    samples = frozenset(_samples(calls, chosen)) & batch.sizes
    tokens = frozenset(size for size in batch.sizes if size % chosen == 0 and size // chosen in samples | {1})
    by_data = batch.sizes - samples - tokens
    own = replace(batch, sizes=tokens | by_data, reached=frozenset())
    factors = [s for call in calls if is_attention(call[0]) for s in all_shapes(call[2][:3]) if len(s) > 2]
    heads = frozenset(shape[-1] for shape in factors)
    weights = frozenset(shape for name, _, arguments in calls for place in WEIGHTS.get(op_of(name), ())
                        for shape in all_shapes(arguments[place : place + 1]))  # fmt: skip
    result_positions = frozenset(_positions(calls, batch, chosen))
    return Sequence(chosen, samples, tokens, by_data, heads, scores, result_positions, weights, own)


def is_attention(name: str) -> bool:
    """Whether an op is attention in one piece."""
    return "attention" in op_of(name)


def length_place(name: str) -> int:
    """The dimension, from the end, of q, k and v that is the length."""
    return -3 if op_of(name).startswith(LENGTH_FIRST) else -2


def _lengths(call: Call) -> Iterator[int]:
    name, _, arguments = call
    shapes = all_shapes(arguments[:3])
    if is_attention(name):
        yield from (shape[length_place(name)] for shape in shapes if len(shape) > 2)
    elif "softmax" in op_of(name):
        yield from (shape[-1] for shape in shapes[:1] if len(shape) > 2 and shape[-1] == shape[-2])


def _samples(calls: list[Call], length: int) -> Iterator[int]:
    """Sizes before a length: of indices of embeddings and of attention."""
    for name, phase, arguments in calls:
        places = DATA.get(op_of(name), ()) if phase != Phase.OPTIMIZER else ()
        if is_attention(name):
            yield from (shape[0] for shape in all_shapes(arguments[:3]) if len(shape) > 3)
        for place in places:
            for shape in tensors(arguments[place]) if place < len(arguments) else ():
                if len(shape) > (1 if op_of(name) in INDEXED else 2) and shape[1] == length:
                    yield shape[0]


def _positions(calls: list[Call], batch: Batch, length: int) -> Iterator[Shape]:
    """Parameters laid along the sequence of data of higher rank, and tables with as many rows as places."""
    for name, phase, arguments in calls:
        shapes = all_shapes(arguments)
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


LAYOUT = ("transpose", "permute", "view", "reshape", "contiguous", "clone", "expand", "unbind", "select", "stack",
          "cat", "split", "chunk", "t", "flatten", "unflatten", "_unsafe_view", "copy_", "slice", "narrow")  # fmt: skip


def stretch_call(call: Call, sequence: Sequence, new_length: int) -> Rescaled:
    """The call with the length changed wherever it is held."""
    name, phase, arguments = call
    factor = new_length / sequence.length
    if phase == Phase.OPTIMIZER:
        return _parameters(arguments, sequence, new_length)
    tokens = scale_call(call, sequence.batch, factor)
    weights = WEIGHTS.get(op_of(name), ())
    result, doubtful = [], tokens.doubtful
    for place, (old, scaled) in enumerate(zip(arguments, tokens.arguments, strict=True)):
        kinds = [_reading(shape, call, sequence) for shape in tensors(old)]
        takes = [kind for kind in kinds if kind is not None]
        doubtful |= any(doubt for _, doubt in takes)
        if place in weights and not is_list(old):
            result.append(_position(old, sequence, new_length))
        elif any(len(shape) > 2 and sequence.batch.is_parameter(shape) for shape in tensors(old)):
            result.append(old)
        elif takes and len(takes) == len(kinds):
            result.append(each(old, lambda shape: _with_length(shape, call, sequence, new_length)))
        else:
            result.append(scaled)
    if is_product(name) and not _fits(result):  # two sizes are alike: rows of data, then, and a weight
        result[1], doubtful = arguments[1], True
    return Rescaled(tuple(result) if not is_product(name) or _fits(result) else arguments, doubtful)


def _fits(arguments: list[Argument]) -> bool:
    """Whether two factors of a product still fit."""
    shapes = all_shapes(arguments[:2])
    return len(shapes) < 2 or min(map(len, shapes)) < 2 or shapes[0][-1] == shapes[1][-2]


def _with_length(shape: Shape, call: Call, sequence: Sequence, new_length: int) -> Shape:
    reading = _reading(shape, call, sequence)
    places = () if reading is None else reading[0]
    return tuple(new_length if place in places else size for place, size in enumerate(shape))


def _reading(shape: Shape, call: Call, sequence: Sequence) -> tuple[tuple[int, ...], bool] | None:
    """(dimensions that are the length, whether in doubt); None: the shape holds tokens or no sequence at all."""
    name, length = call[0], sequence.length
    first = int(is_product(name) and len(shape) == 3)  # of a batched product: how many there are
    at = [place for place, size in enumerate(shape) if size == length and place >= first]
    if shape in sequence.positions:
        # The call adds a table of positions to data, or looks it up.
        compared = any(len(s) > len(shape) and s[-len(shape) :] == shape for s in all_shapes(call[2]))
        return ((at[0],), False) if compared or not sequence.is_shared(shape) else ((), True)
    if shape in sequence.batch.parameters or (not at and shape[:1] and shape[0] not in sequence.samples):
        return None
    if shape[0] in sequence.tokens and shape[0] != length:
        return None
    if not at:
        return ((), False) if len(shape) > 2 else None
    if len(shape) < 3:
        return _flat(shape, call, sequence)
    if is_attention(name) and len(shape) > 3:
        return (len(shape) + length_place(name),), False
    if shape[-2:] == (length, length) and sequence.has_scores:
        # Of a batched product of which all sizes are the length, head and length are alike.
        square = is_product(name) and all(s[-2:] == (length, length) for s in all_shapes(call[2][:2]))
        unclear = length in sequence.heads or square
        layout = op_of(name) in LAYOUT
        return ((len(shape) - 2,), True) if unclear and layout else ((len(shape) - 2, len(shape) - 1), unclear)
    inner = shape[1] == length and shape[0] in sequence.samples
    return (1 if inner else at[0],), False


def _flat(shape: Shape, call: Call, sequence: Sequence) -> tuple[tuple[int, ...], bool] | None:
    """Of one or two dimensions: indices [samples, length], masks [length, length], places [1, length]."""
    length = sequence.length
    if is_product(call[0]) or (len(shape) == 1 and op_of(call[0]) != "embedding"):
        return None
    if shape == (length, length):
        return (0, 1), True
    if len(shape) == 2 and shape[1] == length and shape[0] in sequence.samples | {1}:
        return (1,), False
    return ((0,), False) if len(shape) == 1 else None


def _position(argument: Argument, sequence: Sequence, new_length: int) -> Argument:
    """A table of positions that is looked up."""
    shape = tensors(argument)[0] if argument else ()
    if shape not in sequence.positions or sequence.is_shared(shape):
        return argument
    return tuple(new_length if size == sequence.length and not place else size for place, size in enumerate(shape))


def _parameters(arguments: tuple[Argument, ...], sequence: Sequence, new_length: int) -> Rescaled:
    """What an optimizer updates: of a table's shape that weights have too, the first of each list."""
    result: list[Argument] = []
    doubtful = False
    for argument in arguments:
        seen: set[Shape] = set()
        shapes = []
        for shape in tensors(argument):
            taken = shape in sequence.positions and not (sequence.is_shared(shape) and shape in seen)
            doubtful |= taken and sequence.is_shared(shape)
            seen.add(shape)
            at = shape.index(sequence.length) if taken else len(shape)
            shapes.append((*shape[:at], *([new_length] if taken else []), *shape[at + 1 :]))
        result.append(tuple(shapes) if is_list(argument) else shapes[0] if shapes else argument)
    return Rescaled(tuple(result), doubtful)
