"""Which sizes are batch, given by what the arguments of ops mean; and the shapes of a call with another batch.

linear           data [512,128], weight [384,128]       the first size of data is batch: 512
embedding        table [1000,128], indices [8,64]       8
optimizer        [384,128], [1000,128], ...             parameters: never batch, wherever they appear

forward     [512,128] x [128,384]          rows grow                      data x parameter
gradient    [512,384] x [384,128]          rows grow                      of the input: gradient x parameter
gradient    [384,512] x [512,128]          what is summed over grows      of the parameter: its shape comes out

A parameter in one place may look like data in another: [512,128] may be 512 tokens or a weight. Such a shape is a
parameter where ops do to it only what they do to unmistakable parameters (a gradient copied out of a bucket).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
import pandas as pd

from gnnperf.core import InputError, Phase, Relation
from gnnperf.generate import Argument, Shape, each, is_list, parse, tensors
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import ends
from gnnperf.whatif.units import host_units, with_launched

# Positions of parameters and of data among the arguments of ops (native_functions.yaml of PyTorch).
WEIGHTS: dict[str, tuple[int, ...]] = {
    "linear": (1, 2), "addmm": (0, 2), "conv1d": (1, 2), "conv2d": (1, 2), "conv3d": (1, 2), "convolution": (1, 2),
    "cudnn_convolution": (1,), "embedding": (0,), "embedding_bag": (0,), "layer_norm": (2, 3),
    "native_layer_norm": (2, 3), "batch_norm": (1, 2, 3, 4), "group_norm": (2, 3), "rms_norm": (2,),
    "native_layer_norm_backward": (5, 6), "native_batch_norm_backward": (2, 3, 4, 5, 6), "convolution_backward": (2,),
}  # fmt: skip
DATA: dict[str, tuple[int, ...]] = {
    "linear": (0,), "addmm": (1,), "conv1d": (0,), "conv2d": (0,), "conv3d": (0,), "convolution": (0,),
    "cudnn_convolution": (0,), "embedding": (1,), "embedding_bag": (1, 2), "layer_norm": (0,),
    "native_layer_norm": (0,), "batch_norm": (0,), "group_norm": (0,), "rms_norm": (0,), "cross_entropy_loss": (0, 1),
    "nll_loss": (0, 1), "mse_loss": (0, 1), "binary_cross_entropy_with_logits": (0, 1),
}  # fmt: skip
PRODUCTS = ("mm", "matmul", "bmm")  # forward: data x parameter, if the second is one
INDEXED = ("gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "index_add", "index_add_")
BATCHED = ("bmm", "baddbmm", "matmul")  # products of three dimensions
TRANSPOSE = "t"
SHARDING = "fsdp::"  # gathers and scatters parameters, [ranks, elements]: never data
WHOLE = 1e-6  # relative
Call = tuple[str, str, tuple[Argument, ...]]  # op name, phase, arguments
Pattern = tuple[str, str, tuple[bool, ...]]  # a call without its sizes


@dataclass(frozen=True)
class Batch:
    """What is batch in a graph."""

    sizes: frozenset[int]  # sizes of dimensions that grow with the batch
    parameters: frozenset[Shape]  # shapes of parameters
    bookkeeping: frozenset[Pattern] = frozenset()  # what is done to parameters only
    # further such sizes, which hold for calls of `reached` only: samples per rank
    samples: frozenset[int] = frozenset()
    merged: frozenset[int] = frozenset()  # samples x heads, likewise; of tensors with three dimensions or more
    flat: frozenset[int] = frozenset()  # elements of data, likewise; of tensors with one dimension
    reached: frozenset[Call] = frozenset()  # calls on tensors that come from data

    def of(self, call: Call) -> "Batch":
        """The sizes that hold for a call."""
        if call in self.reached:
            return replace(self, sizes=self.sizes | self.samples)
        return replace(self, merged=frozenset(), flat=frozenset())

    @property
    def elements(self) -> frozenset[int]:
        """Numbers of elements of parameters."""
        return frozenset(prod(shape) for shape in self.parameters)

    def looks_like(self, shape: Shape) -> bool:
        """Whether any dimension has a size of the batch."""
        return self._dimension(shape) is not None

    def is_parameter(self, shape: Shape) -> bool:
        """A parameter, or its transpose."""
        return shape in self.parameters or (*shape[:-2], *shape[:-3:-1]) in self.parameters

    def scaled(self, shape: Shape, factor: float) -> Shape:
        """The shape with its first batch dimension scaled."""
        at = self._dimension(shape)
        return shape if at is None else grown(shape, at, factor)

    def _dimension(self, shape: Shape) -> int | None:
        """The first one that is batch."""
        further = {1: self.flat, 2: frozenset[int]()}.get(len(shape), self.merged)
        places = (place for sizes in (self.sizes, further) for place, size in enumerate(shape) if size in sizes)
        return next(places, None)


def grown(shape: Shape, at: int, factor: float) -> Shape:
    """The shape with dimension `at` scaled, to the next whole number where data decide a size (`check_whole`)."""
    return (*shape[:at], max(round(shape[at] * factor), 1), *shape[at + 1 :])


def whole(size: int, factor: float, what: str, where: str) -> int:
    """A size times a factor. Raises InputError: it does not stay whole."""
    result = max(round(size * factor), 1)
    if abs(size * factor - result) > WHOLE * size * factor:
        raise InputError(f"{size} x {factor:g} is no whole {what}", where=where,
                         allowed=f"a factor that keeps {size} whole")  # fmt: skip
    return result


def check_whole(batch: "Batch", factor: float) -> tuple[int, ...]:
    """Sizes that are no multiple of the batch: data decide them (how many rows of a table fall to a rank).

    Raises InputError: the smallest size, of which the others are multiples, does not stay whole.
    """
    least = min(batch.sizes | batch.samples)
    whole(least, factor, "size", "factor of the batch")
    return tuple(sorted(size for size in batch.sizes if size % least))


def op_of(name: str) -> str:
    """`aten::add_` -> `add_`."""
    return name.rpartition("::")[2]


def all_shapes(arguments: Sequence[Argument]) -> list[Shape]:
    """Of all tensors, in order."""
    return [shape for argument in arguments for shape in tensors(argument)]


def factors(op: str, arguments: Sequence[Argument]) -> tuple[Shape, Shape]:
    """[.., m, k] and [k, n] of a matrix product; () unknown."""
    shapes = [next(iter(tensors(argument)), ()) for argument in arguments]
    a, b = (*shapes[op == "addmm" :], (), ())[:2]
    return (a, b[::-1]) if op == "linear" else (a, b)


def calls_of(nodes: pd.DataFrame) -> list[Call]:
    """Every distinct call of a node table."""
    known = nodes.loc[nodes["input_dims"].notna(), ["op_name", "phase", "input_dims"]].astype(str).drop_duplicates()
    return [(name, phase, parse(dims)) for name, phase, dims in known.itertuples(index=False)]


def find_batch(graph: ExecutionGraph) -> "Batch":
    """Sizes and parameters of a graph. Raises InputError: no op shows which of its arguments is data."""
    calls = calls_of(graph.nodes)
    parameters = frozenset(_parameters(calls))
    sizes = _without_sequence(set(_data(calls, parameters)), calls)
    sizes |= set(_indexing(calls, sizes))
    if not sizes:
        raise InputError("no op whose shapes tell the batch", where=f"graph {graph.name!r}",
                         allowed="a trace with the shapes of inputs, of a program with linear layers, convolutions "
                         "or embeddings", remedy="record with record_shapes=True")  # fmt: skip
    return _carried_on(_with_bookkeeping(Batch(frozenset(sizes), parameters), calls), graph)


def _carried_on(batch: "Batch", graph: ExecutionGraph) -> "Batch":
    """Sizes that tensors from data have in other layouts, along `feeds` edges where the graph has any.

    [512,12] -> [64,8,12]          512 = 64 x 8: samples or their length; lengths are sides of squares (scores)
    [64,8,2,3] -> [16,64,3]        16 = 8 samples x 2 heads, of as many elements
    [16,64,64]                     scores: 64 x 8 = 512 are sizes of the batch, so 16 = 8 samples x 2 heads
    """
    reached, is_followed = _reached(batch, graph)
    shapes = {shape for call in reached if call[1] != Phase.OPTIMIZER for shape in all_shapes(call[2])}
    shapes -= batch.parameters
    lengths = {size for call in reached for size in _sides(call)} | {s[0] for s in batch.parameters if len(s) > 1}
    pairs = [
        (s[at], s[at + 1]) for s in shapes for at in range(len(s) - 1)
        if len(s) > 2 and not {s[at], s[at + 1]} & (batch.sizes | {1}) and s[at] * s[at + 1] in batch.sizes
        and (*s[:at], s[at] * s[at + 1], *s[at + 2 :]) in shapes
    ]  # fmt: skip
    samples = frozenset(size for pair in pairs for size in pair if size not in lengths)
    heads = {(s[at] * s[at + 1], prod(s)) for s in shapes for at in range(len(s) - 1)
             if len(s) > 3 and s[at] in batch.sizes | samples}  # fmt: skip
    factors = {s for call in reached if op_of(call[0]) in BATCHED for s in all_shapes(call[2])}
    merged = frozenset(s[0] for s in factors if len(s) == 3 and (s[0], prod(s)) in heads) - batch.sizes
    merged |= frozenset(_of_scores(factors, batch.sizes | samples)) - batch.sizes
    more = replace(batch, samples=samples, merged=merged, reached=frozenset(reached))
    if not is_followed:
        return more
    own = replace(more, sizes=batch.sizes | samples)
    data = {prod(s) for s in shapes if len(s) > 2 and own.looks_like(s)}
    flat = frozenset(s[0] for s in shapes if len(s) == 1 and s[0] in data and s not in batch.parameters)
    return replace(more, flat=flat - batch.elements)


def _of_scores(factors: set[Shape], sizes: frozenset[int]) -> Iterator[int]:
    """Leading sizes, samples x heads, of squares whose side is a length: samples x length is a size of the batch."""
    for shape in factors:
        if len(shape) == 3 and shape[1] == shape[2] and shape[0] not in sizes:
            yield from (shape[0] for b in sizes if b > 1 and b * shape[1] in sizes and shape[0] % b == 0)


def _sides(call: Call) -> Iterator[int]:
    """Sides of squares: of attention scores."""
    name, _, arguments = call
    if op_of(name) in BATCHED or "softmax" in op_of(name):
        yield from (s[-1] for s in all_shapes(arguments) if len(s) > 2 and s[-1] == s[-2])


def _reached(batch: "Batch", graph: ExecutionGraph) -> tuple[set[Call], bool]:
    """(calls tied to data by tensors that one makes and the other takes, True); (all, False) without such tensors."""
    nodes, columns = graph.nodes, ["op_name", "phase", "input_dims"]
    code = nodes.groupby(columns, observed=True, dropna=False, sort=False).ngroup().to_numpy()
    table = nodes.assign(code=code).loc[nodes["input_dims"].notna(), [*columns, "code"]].drop_duplicates("code")
    calls = {int(str(number)): (str(name), str(phase), parse(str(dims)))
             for name, phase, dims, number in table.itertuples(index=False)}  # fmt: skip
    phase, (src, dst) = nodes["phase"].astype(str).to_numpy(), ends(graph, Relation.FEEDS)
    if not (phase[src] == phase[dst]).any():
        return set(calls.values()), False
    shapes = {number: [s for s in all_shapes(call[2]) if s not in batch.parameters] for number, call in calls.items()}
    seeds = [number for number, own in shapes.items() if any(map(batch.looks_like, own))]
    fixed = [number for number, own in shapes.items() if not own]  # parameters only
    may = (phase != Phase.OPTIMIZER) & ~np.isin(code, fixed)
    unit = with_launched(graph, host_units(graph))
    unit = np.where(unit >= 0, unit, unit.max(initial=-1) + 1 + np.arange(len(unit)))
    reached = np.zeros(int(unit.max(initial=0)) + 1, dtype=bool)  # by call
    reached[unit[np.isin(code, seeds) & may]] = True
    src, dst = unit[src[may[src] & may[dst]]], unit[dst[may[src] & may[dst]]]
    count = -1
    while count < (count := int(reached.sum())):
        reached[dst[reached[src]]] = reached[src[reached[dst]]] = True
    return {calls[number] for number in np.unique(code[reached[unit] & may]).tolist() if number in calls}, True


def _parameters(calls: list[Call]) -> Iterator[Shape]:
    for name, phase, arguments in calls:
        weights = WEIGHTS.get(op_of(name), ())
        for place, argument in enumerate(arguments):
            if phase == Phase.OPTIMIZER or place in weights:
                yield from tensors(argument)


def _data(calls: list[Call], parameters: frozenset[Shape]) -> Iterator[Shape]:
    """Shapes of arguments that are data by position."""
    for name, phase, arguments in calls:
        op = op_of(name)
        places = DATA.get(op, ()) if phase != Phase.OPTIMIZER else ()
        for place in places:
            if place < len(arguments):
                yield from tensors(arguments[place])
        if op in PRODUCTS and phase == Phase.FORWARD and len(arguments) > 1 and arguments[1] in parameters:
            first = next(iter(tensors(arguments[0])), ())
            if len(first) > 1:
                yield first[-2:] if op == "bmm" else first


def _indexing(calls: list[Call], sizes: set[int]) -> Iterator[int]:
    """Rows that are picked from rows of data, or added to them, as edges of graphs are: [131072,64] by [1048576,64]."""
    for name, _, arguments in calls:
        if op_of(name) in INDEXED:
            rows, *others = all_shapes(arguments) or [()]
            yield from (one[0] for one in others if rows and rows[0] in sizes and len(one) == len(rows)
                        and one[1:] == rows[1:] and one[0] > 1)  # fmt: skip


def _without_sequence(data: set[Shape], calls: list[Call]) -> set[int]:
    """First sizes of data but lengths of sequences, which lead where positions are looked up.

    8 x 64 tokens = 512, so 64 is none. Then [1,64] is the same for all samples, and neither 1 nor its length is one.
    """
    second = {(shape[0], shape[1]) for _, _, arguments in calls for shape in all_shapes(arguments) if len(shape) > 1}
    result = {shape[0] for shape in data}
    pairs = [(batch, size) for batch, size in second
             if size not in (batch, 1) and batch > 1 and {batch, batch * size} <= result]  # fmt: skip
    lengths = {size for _, size in pairs}
    shared = {1, *(shape[1] for shape in data if len(shape) > 1 and shape[0] == 1)} if pairs else set()
    return result - lengths - (shared - {size for batch, length in pairs for size in (batch, batch * length)})


def _pattern(call: Call) -> Pattern:
    return call[0], call[1], tuple(map(bool, call[2]))


def _with_bookkeeping(batch: "Batch", calls: list[Call]) -> "Batch":
    """What is done to unmistakable parameters, and to nothing that is unmistakably data."""
    to_parameters: set[Pattern] = set()
    to_data: set[Pattern] = set()
    for call in calls:
        shapes = all_shapes(call[2])
        if shapes and all(shape in batch.parameters and not batch.looks_like(shape) for shape in shapes):
            to_parameters.add(_pattern(call))
        elif any(batch.looks_like(shape) and shape not in batch.parameters for shape in shapes):
            to_data.add(_pattern(call))
    return replace(batch, bookkeeping=frozenset(to_parameters - to_data))


def is_product(name: str) -> bool:
    """Whether the arguments are two factors of a matrix product."""
    return op_of(name) in PRODUCTS


class Rescaled(NamedTuple):
    """A call with other sizes."""

    arguments: tuple[Argument, ...]  # its shapes
    doubtful: bool = False  # some shape could be read in two ways


def scale_call(call: Call, batch: "Batch", factor: float) -> Rescaled:
    """The call with every batch dimension scaled."""
    name, phase, arguments = call
    shapes, batch = all_shapes(arguments), batch.of(call)
    doubtful = any(shape in batch.parameters and batch.looks_like(shape) for shape in shapes)
    if phase == Phase.OPTIMIZER or name.startswith(SHARDING):
        return Rescaled(arguments)
    if _pattern(call) in batch.bookkeeping and all(shape in batch.parameters for shape in shapes):
        return Rescaled(arguments, doubtful)
    if op_of(name) == TRANSPOSE and shapes and batch.is_parameter(shapes[0]):  # a layer transposes its weight
        return Rescaled(arguments, batch.looks_like(shapes[0]))
    if is_product(name) and len(arguments) > 1 and all(len(a) > 1 and not is_list(a) for a in arguments[:2]):
        return _product(arguments, batch, factor)
    weights = WEIGHTS.get(op_of(name), ())
    # A parameter is added to data of higher rank, to which it is broadcast, where their last dimensions are the same.
    added = {a for a in arguments if a in batch.parameters
             and any(len(s) > len(a) and s[-len(a) :] == a for s in shapes)}  # fmt: skip
    result = tuple(
        argument if place in weights or argument in added else _argument(argument, batch, factor)
        for place, argument in enumerate(arguments)
    )
    return Rescaled(result, doubtful and op_of(name) not in WEIGHTS)


def _argument(argument: Argument, batch: "Batch", factor: float) -> Argument:
    """A list holds data or parameters, not both: of data, every tensor has the batch."""
    if not all(batch.looks_like(shape) for shape in tensors(argument)):
        return argument
    return each(argument, lambda shape: _tensor(shape, batch, factor))


def _tensor(shape: Shape, batch: "Batch", factor: float) -> Shape:
    """What could be either is data; the sum over a batch, [1, n] for a parameter [n], is not."""
    if 1 not in batch.sizes and shape[:1] == (1,) and shape[1:] in batch.parameters:
        return shape
    return batch.scaled(shape, factor)


def _product(arguments: tuple[Argument, ...], batch: "Batch", factor: float) -> Rescaled:
    left, right, *rest = arguments
    a, b = tensors(left)[0], tensors(right)[0]
    if len(a) != len(b) or len(a) > 3:
        return Rescaled((batch.scaled(a, factor), b if batch.is_parameter(b) else batch.scaled(b, factor), *rest))
    summed = a[-1] in batch.sizes and batch.is_parameter((*a[:-1], b[-1]))
    rows = a[-2] in batch.sizes and batch.is_parameter(b)
    if summed and not rows:
        return Rescaled((grown(a, len(a) - 1, factor), grown(b, len(b) - 2, factor), *rest))
    if rows:
        return Rescaled((grown(a, len(a) - 2, factor), b, *rest), doubtful=summed)
    return Rescaled((batch.scaled(a, factor), batch.scaled(b, factor), *rest))
