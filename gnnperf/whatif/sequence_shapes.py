"""The shapes of a call with longer or shorter sequences.

[512,128] x [384,128]       tokens grow                        as with a larger batch
[8,4,64,32]                 the length                         by its place, or the first size that is one
[8,4,64,64]                 both, where they are scores
[64,128]                    a table of positions               where it is one
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate import Argument, Shape, each, is_list, tensors
from gnnperf.whatif.batch_shapes import is_parameter, scale_call
from gnnperf.whatif.batch_sizes import WEIGHTS, Call, is_product, op_of
from gnnperf.whatif.sequence_sizes import Sequence, is_attention, length_place

LAYOUT = ("transpose", "permute", "view", "reshape", "contiguous", "clone", "expand", "unbind", "select", "stack",
          "cat", "split", "chunk", "t", "flatten", "unflatten", "_unsafe_view", "copy_", "slice", "narrow")  # fmt: skip


@dataclass(frozen=True)
class Stretched:
    """A call with another length.

    Attributes:
        arguments: its shapes.
        doubtful: some shape could be read in two ways.
    """

    arguments: tuple[Argument, ...]
    doubtful: bool = False


def stretch_call(call: Call, sequence: Sequence, new_length: int) -> Stretched:
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
        elif any(len(shape) > 2 and is_parameter(shape, sequence.batch) for shape in tensors(old)):
            result.append(old)
        elif takes and len(takes) == len(kinds):
            result.append(each(old, lambda shape: _with_length(shape, call, sequence, new_length)))
        else:
            result.append(scaled)
    if is_product(name) and not _fits(result):  # two sizes are alike: rows of data, then, and a weight
        result[1], doubtful = arguments[1], True
    return Stretched(tuple(result) if not is_product(name) or _fits(result) else arguments, doubtful)


def _fits(arguments: list[Argument]) -> bool:
    """Whether two factors of a product still fit."""
    shapes = [shape for argument in arguments[:2] for shape in tensors(argument)]
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
        compared = _is_next_to_data(shape, call)
        return ((at[0],), False) if compared or not sequence.is_shared(shape) else ((), True)
    if shape in sequence.batch.parameters or (not at and shape[:1] and shape[0] not in sequence.samples):
        return None
    if shape[0] in sequence.tokens and shape[0] != length:
        return None
    if not at:
        return ((), False) if len(shape) > 2 else None
    if len(shape) < 3:
        return _flat(shape, call, sequence, at)
    if is_attention(name) and len(shape) > 3:
        return (len(shape) + length_place(name),), False
    if shape[-2:] == (length, length) and sequence.has_scores:
        unclear = length in sequence.heads or _is_square_product(call, length)
        layout = op_of(name) in LAYOUT
        return ((len(shape) - 2,), True) if unclear and layout else ((len(shape) - 2, len(shape) - 1), unclear)
    inner = shape[1] == length and shape[0] in sequence.samples
    return (1 if inner else at[0],), False


def _flat(shape: Shape, call: Call, sequence: Sequence, at: list[int]) -> tuple[tuple[int, ...], bool] | None:
    """Of one or two dimensions: indices [samples, length], masks [length, length], places [1, length]."""
    length = sequence.length
    if is_product(call[0]) or (len(shape) == 1 and op_of(call[0]) != "embedding"):
        return None
    if shape == (length, length):
        return (0, 1), True
    if len(shape) == 2 and shape[1] == length and shape[0] in sequence.samples | {1}:
        return (1,), False
    return ((0,), False) if len(shape) == 1 else None


def _is_next_to_data(shape: Shape, call: Call) -> bool:
    """Whether the call adds a table of positions to data, or looks it up."""
    shapes = [other for argument in call[2] for other in tensors(argument)]
    return any(len(other) > len(shape) and other[-len(shape) :] == shape for other in shapes)


def _is_square_product(call: Call, length: int) -> bool:
    """A batched product of which all sizes are the length: head and length are alike."""
    shapes = [shape for argument in call[2][:2] for shape in tensors(argument)]
    return is_product(call[0]) and all(shape[-2:] == (length, length) for shape in shapes)


def _position(argument: Argument, sequence: Sequence, new_length: int) -> Argument:
    """A table of positions that is looked up."""
    shape = tensors(argument)[0] if argument else ()
    if shape not in sequence.positions or sequence.is_shared(shape):
        return argument
    return tuple(new_length if size == sequence.length and not place else size for place, size in enumerate(shape))


def _parameters(arguments: tuple[Argument, ...], sequence: Sequence, new_length: int) -> Stretched:
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
            shapes.append(_grown(shape, sequence, new_length) if taken else shape)
        result.append(tuple(shapes) if is_list(argument) else shapes[0] if shapes else argument)
    return Stretched(tuple(result), doubtful)


def _grown(shape: Shape, sequence: Sequence, new_length: int) -> Shape:
    at = shape.index(sequence.length)
    return (*shape[:at], new_length, *shape[at + 1 :])
