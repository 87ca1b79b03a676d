"""From an OpPoint to something that can be called: the op by its schema, tensors with random contents."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from gnnperf.core import InputError
from gnnperf.record.calibrate.point import Direction, OpPoint, Shape

Call = Callable[[], object]
TENSORS = ("Tensor", "Optional[Tensor]")
LISTS = ("List[Tensor]", "List[Optional[Tensor]]")
NAME = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?")
SPARSE = "sparse_"
UNSCALED_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
# Ops whose third tensor divides another one in equal parts: which one, and whether by their ends (1) or beginnings (0).
DIVIDING = {"embedding_bag": (1, 0), "grouped_mm": (0, 1)}
POSITIVE = ("sqrt", "rsqrt", "log", "log2", "log10")  # of negative numbers they are slow, and no number


def overload_of(point: OpPoint) -> Any:
    """The overload of the point's op that takes its tensors and arguments."""
    results = NAME.fullmatch(point.op)
    namespace = getattr(torch.ops, results[1], None) if results else None
    packet = getattr(namespace, results[2], None) if results else None
    if results is None or packet is None:
        raise InputError(f"no op named {point.op!r} in torch {torch.__version__}", where="ops",
                         allowed="names as in traces, e.g. aten::mm or aten::add.out")  # fmt: skip
    names = [results[3]] if results[3] else packet.overloads()
    for name in names:
        overload = getattr(packet, name, None)
        if overload is not None and _takes(overload, point):
            return overload
    raise InputError(f"{point.op} has no overload for {len(point.shapes)} tensors and arguments "
                     f"{dict(point.arguments)!r}", where="ops",
                     allowed="; ".join(str(getattr(packet, n)._schema) for n in names if hasattr(packet, n))
                     )  # fmt: skip


def _takes(overload: Any, point: OpPoint) -> bool:
    given = dict(point.arguments)
    arguments = overload._schema.arguments
    tensors = [a for a in arguments if str(a.type) in TENSORS]
    lists = [a for a in arguments if str(a.type) in LISTS]
    others = [a for a in arguments if str(a.type) not in TENSORS + LISTS]
    needed = [a for a in tensors if not a.has_default_value()]
    enough = len(point.shapes) >= 1 if lists else len(needed) <= len(point.shapes) <= len(tensors)
    return (enough and len(lists) <= 1 and not (lists and tensors) and set(given) <= {a.name for a in others}
            and all(a.name in given or a.has_default_value() for a in others))  # fmt: skip


def calls(point: OpPoint, device: torch.device, generator: torch.Generator) -> list[Call]:
    """One call per table of the point, each with tensors of its own; to be timed without recording gradients."""
    overload = overload_of(point)
    try:
        made = [_call(overload, point, device, generator) for _ in range(point.tables)]
        made[0]()
    except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError) as error:
        raise InputError(f"{point.op} does not run: {str(error).strip().splitlines()[0]}", where="ops",
                         allowed=str(overload._schema)) from None  # fmt: skip
    return made


def _call(overload: Any, point: OpPoint, device: torch.device, generator: torch.Generator) -> Call:
    tensors = list(_tensors(point, device, generator))
    positional, named = _arguments(overload, point, tensors)
    if point.direction is Direction.FORWARD:
        return partial(overload, *positional, **named)
    leaves = [t.requires_grad_() for t in tensors if t is not None and t.is_floating_point()]
    result = overload(*positional, **named)
    results = result if isinstance(result, tuple | list) else [result]
    outputs = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if not outputs:
        raise InputError("no output has a gradient", where=point.op, allowed="direction: forward")
    gradients = [torch.randn_like(output) for output in outputs]
    return lambda: torch.autograd.grad(outputs, leaves, gradients, retain_graph=True, allow_unused=True)


def _arguments(
    overload: Any, point: OpPoint, tensors: list[torch.Tensor | None]
) -> tuple[list[object], dict[str, Any]]:
    given, left = dict(point.arguments), list(tensors)
    positional: list[object] = []
    named: dict[str, Any] = {}
    for argument in overload._schema.arguments:
        if str(argument.type) in LISTS:
            value: object = left
        elif str(argument.type) in TENSORS and left:
            value = left.pop(0)
        elif argument.name in given:
            value = _plain(given[argument.name])
        else:
            value = argument.default_value
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def _plain(value: object) -> object:
    """Names of dtypes become dtypes, tuples lists."""
    if isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype):
        return getattr(torch, value)
    return list(value) if isinstance(value, tuple) else value


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a name such as "float32", or "sparse_float32" of a gradient that holds some rows only."""
    results = getattr(torch, name.removeprefix(SPARSE), None)
    if not isinstance(results, torch.dtype):
        raise InputError(f"no dtype named {name!r}", where="dtypes",
                         allowed="float32, bfloat16, int64, bool, ..., sparse_float32")  # fmt: skip
    return results


def _tensors(point: OpPoint, device: torch.device, generator: torch.Generator) -> Iterator[torch.Tensor | None]:
    rows = next((s[0] for s in point.shapes if s), 2)  # integer inputs pick rows of the first tensor
    name_of_op = point.op.rpartition("::")[2].split(".")[0]  # in place it would work on its own results
    for place, (shape, name) in enumerate(zip(point.shapes, point.dtypes, strict=True)):
        if shape is None:
            yield None
        elif place == 2 and name_of_op.lstrip("_") in DIVIDING:
            divided, first = DIVIDING[name_of_op.lstrip("_")]
            bounds = (torch.arange(shape[0]) + first) * (point.shapes[divided] or (0,))[0] // max(shape[0], 1)
            yield bounds.to(device=device, dtype=dtype_of(name))
        elif name.startswith(SPARSE):
            yield _sparse(shape, point, device, generator, dtype_of(name))
        else:
            whole = (*shape[:-2], shape[-1], shape[-2]) if place in point.transposed else shape
            made = random_tensor(whole, dtype_of(name), device, generator, rows, point.skew)
            made = made.abs() if name_of_op in POSITIVE else made
            yield made.transpose(-1, -2) if place in point.transposed else made


def _sparse(
    shape: Shape, point: OpPoint, device: torch.device, generator: torch.Generator, dtype: torch.dtype
) -> torch.Tensor:
    """Rows of a gradient as look-ups leave them, not added up.

    Its values have `shape`; as a whole it is as large as the first tensor.
    """
    whole = point.shapes[0]
    assert whole is not None
    rows = random_tensor((1, shape[0]), torch.int64, device, generator, whole[0], point.skew)
    values = random_tensor(shape, dtype, device, generator, whole[0], point.skew)
    return torch.sparse_coo_tensor(rows, values, (whole[0], *shape[1:]), check_invariants=False)


def random_tensor(
    shape: Shape, dtype: torch.dtype, device: torch.device, generator: torch.Generator, rows: int, skew: float
) -> torch.Tensor:
    """Normal values (8-bit floats: converted); integers in [0, rows), skewed to small ones; random booleans.

    Zeros would be cheaper than real data on devices that clock by power.
    """
    if dtype.is_floating_point:
        wide = dtype if dtype not in UNSCALED_DTYPES else torch.float32
        return torch.randn(shape, generator=generator, device=device, dtype=wide).to(dtype)
    uniform = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
    if dtype is torch.bool:
        return uniform < 0.5
    rows = min(rows, torch.iinfo(dtype).max)
    return (uniform.pow(skew) * rows).floor().clamp_(max=max(rows - 1, 0)).to(dtype)
