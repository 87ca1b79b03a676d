"""OpCall: recorded inputs of one op call, from the JSON texts of schema.EVENT_COLUMNS; Work: what a formula returns."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "complex32": 4, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip

# Names the profiler writes (c10 type names, with and without namespace) -> torch dtype names.
PROFILER_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "Half": "float16",
    "c10::BFloat16": "bfloat16", "BFloat16": "bfloat16", "long int": "int64", "long": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "unsigned short": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
}  # fmt: skip

ASSUMED_DTYPE = "float32"  # torch's default; taken only where a file records no dtype


class UnknownCost(Exception):
    """A shape or value that the formula needs was not recorded. Becomes NaN in `op_cost`, never leaves the package."""


class Tensor(NamedTuple):
    """One recorded tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * self.item_bytes


@dataclass(frozen=True)
class OpCall:
    """One op call as recorded. Arguments count from 0 and keep the place they have in the op's schema."""

    name: str  # op name as the profiler wrote it
    tensors: tuple[Tensor | None, ...]  # [num_args] the tensor of each argument; None where it is no tensor or unknown
    # [num_args] tensors of each TensorList argument; None where it is no list or its shapes are unknown
    lists: tuple[tuple[Tensor, ...] | None, ...]
    values: tuple[str, ...]  # [num_args] text of each scalar argument ("" unknown or not a scalar)
    dtype_assumed: bool  # a shape was recorded without its dtype

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """[num_args] the shape of each argument; () where it is no tensor or unknown."""
        return [() if tensor is None else tensor.shape for tensor in self.tensors]

    def tensor(self, arg: int) -> Tensor:
        """Tensor argument `arg`."""
        result = self.optional(arg)
        if result is None:
            raise UnknownCost
        return result

    def optional(self, arg: int) -> Tensor | None:
        """Tensor argument `arg`, or None if absent."""
        return self.tensors[arg] if arg < len(self.tensors) else None

    def tensor_list(self, arg: int) -> tuple[Tensor, ...]:
        """Tensors of list argument `arg`."""
        if arg >= len(self.lists) or self.lists[arg] is None:
            raise UnknownCost
        return self.lists[arg] or ()

    def all_tensors(self) -> list[Tensor]:
        """Every tensor, lists included."""
        single = [t for t in self.tensors if t is not None]
        return single + [t for result in self.lists if result is not None for t in result]

    def text(self, arg: int) -> str:
        """Recorded text of scalar argument `arg`; "" unknown."""
        return self.values[arg] if arg < len(self.values) else ""

    def integers(self, arg: int) -> tuple[int, ...]:
        """A list or single integer value, e.g. a stride "[2, 2]"."""
        try:
            parsed = json.loads(self.text(arg))
        except json.JSONDecodeError:  # "", or something that is no list of numbers: not recorded
            raise UnknownCost from None
        result = parsed if isinstance(parsed, list) else [parsed]
        if not all(type(x) is int for x in result):
            raise UnknownCost
        return tuple(result)

    def is_true(self, arg: int) -> bool:
        """Whether a flag was recorded as true."""
        return self.text(arg) in ("True", "true", "1")

    @property
    def largest_dtype(self) -> str | None:
        """Dtype of the largest tensor; None if no dtype was recorded."""
        result = self.all_tensors()
        return None if self.dtype_assumed or not result else max(result, key=lambda t: t.numel).dtype


def parse_call(name: str, dims: str | None, types: str | None, values: str | None) -> OpCall:
    """Read the JSON texts of one call; UnknownCost where no shapes were recorded, or a profiler writes no such text."""
    shapes, kinds, texts = _read_list(dims), _read_list(types), _read_list(values)
    if not shapes:
        raise UnknownCost
    kinds = kinds + [None] * (len(shapes) - len(kinds))  # 2021 files record shapes without types
    tensors = [_tensor(s, k) for s, k in zip(shapes, kinds, strict=False)]
    lists = [_list(s) for s in shapes]
    typed = [t is None or isinstance(k, str) for t, k in zip(tensors, kinds, strict=False)]
    unknown = not all(typed) or any(lists)
    return OpCall(name, tuple(tensors), tuple(lists), tuple(str(t) for t in texts), unknown)


def _read_list(text: str | None) -> list:
    if not text:
        return []
    try:
        result = json.loads(text)
    except json.JSONDecodeError:
        raise UnknownCost from None
    if not isinstance(result, list):
        raise UnknownCost
    return result


def _tensor(shape: object, kind: object) -> Tensor | None:
    if not isinstance(shape, list) or not all(type(x) is int and x >= 0 for x in shape):
        return None
    if isinstance(kind, str):  # a 0-dim tensor has dims [] and a dtype; a scalar has dims [] and type "Scalar"
        return Tensor(tuple(shape), PROFILER_DTYPES[kind]) if kind in PROFILER_DTYPES else None
    return Tensor(tuple(shape), ASSUMED_DTYPE) if shape else None


def _list(shapes: object) -> tuple[Tensor, ...] | None:
    """Profilers record the shapes of a TensorList but no dtypes; older ones record neither (dims [])."""
    if not isinstance(shapes, list) or not shapes or not all(isinstance(s, list) for s in shapes):
        return None
    if not all(type(x) is int and x >= 0 for s in shapes for x in s):
        return None
    return tuple(Tensor(tuple(s), ASSUMED_DTYPE) for s in shapes)


class Work(NamedTuple):
    """FLOPs executed and bytes moved to and from memory, each operand counted once per pass over it.

    A multiply-add counts two (the convention of torch.utils.flop_counter).
    """

    flops: float
    bytes: float


Formula = Callable[[OpCall], Work]


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Shape after broadcasting (numpy's rule)."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:  # a batch of ops recorded with shapes that do not belong together
        raise UnknownCost from None


def result_dtype_bytes(tensors: list[Tensor]) -> int:
    """Bytes of an output element: the widest floating dtype wins; 0-dim tensors do not widen others (torch's rule)."""
    ranked = [t for t in tensors if t.shape] or tensors
    floating = [t for t in ranked if "float" in t.dtype or "complex" in t.dtype]
    return max((t.item_bytes for t in floating or ranked), default=0)


def total_bytes(*tensors: Tensor | None) -> float:
    """Bytes of the tensors that are there."""
    return float(sum(t.num_bytes for t in tensors if t is not None))


def of_ops(names: str, formula: Formula, prefix: str = "aten::") -> dict[str, Formula]:
    """One formula for several ops, given as words."""
    return {prefix + name: formula for name in names.split()}
