"""Recorded input shapes as values: parse, change, write back.

[[512,128],[[4,2],[4]],[]]      a tensor, a list of tensors, no tensor (or one without dimensions)
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Shape = tuple[int, ...]
Argument = Shape | tuple[Shape, ...]


@lru_cache(maxsize=1 << 16)
def parse(dims: str) -> tuple[Argument, ...]:
    """The arguments of a call."""
    return tuple(_argument(result) for result in json.loads(dims))


def _argument(result: list[Any]) -> Argument:
    return tuple(tuple(inner) for inner in result) if result and isinstance(result[0], list) else tuple(result)


def text(arguments: tuple[Argument, ...]) -> str:
    """As the graph has it."""
    return json.dumps(arguments, separators=(",", ":"))


def is_list(argument: Argument) -> bool:
    """Whether an argument is a list of tensors."""
    return bool(argument) and isinstance(argument[0], tuple)


def tensors(argument: Argument) -> tuple[Shape, ...]:
    """The tensors of an argument; none where it has no dimension."""
    if is_list(argument):
        return tuple(shape for shape in argument if shape)  # type: ignore[misc]
    return (argument,) if argument else ()  # type: ignore[return-value]


def each(argument: Argument, change: Callable[[Shape], Shape]) -> Argument:
    """The argument with every tensor changed."""
    if is_list(argument):
        return tuple(change(shape) for shape in argument)  # type: ignore[arg-type]
    return change(argument)  # type: ignore[arg-type]
