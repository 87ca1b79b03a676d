"""The shapes of a call with another batch.

forward     [512,128] x [128,384]          rows grow                      data x parameter
gradient    [512,384] x [384,128]          rows grow                      of the input: gradient x parameter
gradient    [384,512] x [512,128]          what is summed over grows      of the parameter: its shape comes out
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate import Argument, Shape, each, tensors
from gnnperf.whatif.batch_sizes import WEIGHTS, Batch, Call, grown, is_product, op_of, pattern

TRANSPOSE = "t"
SHARDING = "fsdp::"  # gathers and scatters parameters, [ranks, elements]: never data


@dataclass(frozen=True)
class Scaled:
    """A call with another batch.

    Attributes:
        arguments: its shapes.
        doubtful: some shape could be of data or of a parameter; the rules took it for one of them.
    """

    arguments: tuple[Argument, ...]
    doubtful: bool = False


def scale_call(call: Call, batch: Batch, factor: float) -> Scaled:
    """The call with every batch dimension scaled."""
    name, phase, arguments = call
    if phase == Phase.OPTIMIZER or name.startswith(SHARDING):
        return Scaled(arguments)
    if pattern(call) in batch.bookkeeping and _all_parameters(arguments, batch):
        return Scaled(arguments, doubtful=any(map(batch.is_doubtful, _shapes(arguments))))
    if op_of(name) == TRANSPOSE and is_parameter(_first(arguments), batch):  # a layer transposes its weight
        return Scaled(arguments, doubtful=batch.looks_like(_first(arguments)))
    if is_product(name) and len(arguments) > 1 and _is_matrix(arguments[0]) and _is_matrix(arguments[1]):
        return _product(arguments, batch, factor)
    weights = WEIGHTS.get(op_of(name), ())
    shapes = _shapes(arguments)
    result = tuple(
        argument if place in weights or _is_added(argument, batch, shapes) else _argument(argument, batch, factor)
        for place, argument in enumerate(arguments)
    )
    doubtful = op_of(name) not in WEIGHTS and any(map(batch.is_doubtful, _shapes(arguments)))
    return Scaled(result, doubtful)


def _is_added(argument: Argument, batch: Batch, compared: list[Shape]) -> bool:
    """A parameter next to data of higher rank to which it is broadcast: their last dimensions are the same."""
    size = len(argument)
    return argument in batch.parameters and any(len(s) > size and s[-size:] == argument for s in compared)


def _argument(argument: Argument, batch: Batch, factor: float) -> Argument:
    """A list holds data or parameters, not both: of data, every tensor has the batch."""
    if not all(batch.looks_like(shape) for shape in tensors(argument)):
        return argument
    return each(argument, lambda shape: _tensor(shape, batch, factor))


def _tensor(shape: Shape, batch: Batch, factor: float) -> Shape:
    """What could be either is data; the sum over a batch, [1, n] for a parameter [n], is not."""
    if 1 not in batch.sizes and shape[:1] == (1,) and shape[1:] in batch.parameters:
        return shape
    return batch.scaled(shape, factor)


def _shapes(arguments: tuple[Argument, ...]) -> list[Shape]:
    return [shape for argument in arguments for shape in tensors(argument)]


def _first(arguments: tuple[Argument, ...]) -> Shape:
    return next(iter(_shapes(arguments)), ())


def _all_parameters(arguments: tuple[Argument, ...], batch: Batch) -> bool:
    return all(shape in batch.parameters for shape in _shapes(arguments))


def _is_matrix(argument: Argument) -> bool:
    return len(argument) > 1 and not isinstance(argument[0], tuple)


def _product(arguments: tuple[Argument, ...], batch: Batch, factor: float) -> Scaled:
    left, right, *rest = arguments
    a, b = tensors(left)[0], tensors(right)[0]
    if len(a) != len(b) or len(a) > 3:
        return Scaled((batch.scaled(a, factor), _weight(b, batch, factor), *rest))
    summed = a[-1] in batch.sizes and is_parameter((*a[:-1], b[-1]), batch)
    rows = a[-2] in batch.sizes and is_parameter(b, batch)
    if summed and not rows:
        return Scaled((grown(a, len(a) - 1, factor), grown(b, len(b) - 2, factor), *rest))
    if rows:
        return Scaled((grown(a, len(a) - 2, factor), b, *rest), doubtful=summed)
    return Scaled((batch.scaled(a, factor), batch.scaled(b, factor), *rest))


def _weight(shape: Shape, batch: Batch, factor: float) -> Shape:
    return shape if is_parameter(shape, batch) else batch.scaled(shape, factor)


def is_parameter(shape: Shape, batch: Batch) -> bool:
    """A parameter, or its transpose."""
    return shape in batch.parameters or (*shape[:-2], shape[-1], shape[-2]) in batch.parameters
