"""Call: one node of an operator list, with what its arguments are; and what its result is."""

from dataclasses import dataclass
from itertools import permutations
from math import prod

from gnnperf.graph import Tensor
from research.listed.operator_list import NUMBER, ListedOp

# Layouts of tensors: which views are free, and where torch has to copy.
#
# A list of operators shows shapes, not strides. What permutes, splits and views do to strides follows from the shapes.

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Shape and strides, both [num_axes], in elements."""

    shape: Shape
    strides: Shape

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie one after the other; axes of one element may have any stride."""
        dense = contiguous(self.shape).strides
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, dense, strict=True))


def contiguous(shape: Shape) -> Layout:
    return Layout(shape, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))


def permuted(layout: Layout, shape: Shape) -> Layout | None:
    """The axes in another order, so that they have `shape`; None: no order does.

    Where several orders do (two axes of one length), the one that moves the fewest axes.
    """
    axes = range(len(layout.shape))
    if sorted(layout.shape) != sorted(shape):
        return None
    orders = (order for order in permutations(axes) if tuple(layout.shape[a] for a in order) == shape)
    best = min(
        orders, key=lambda order: (sum(a != b for a, b in zip(order, axes, strict=True)) or len(axes) + 1, order)
    )
    return Layout(shape, tuple(layout.strides[a] for a in best))


def viewed(layout: Layout, shape: Shape) -> Layout | None:
    """The same elements in another shape without a copy; None: torch would copy (aten/src/ATen/TensorUtils.cpp)."""
    if prod(shape) != prod(layout.shape):
        return None
    if prod(shape) == 0:
        return contiguous(shape)
    strides: list[int] = []
    left = list(reversed(shape))
    for count, stride in reversed(_chunks(layout)):
        covered = 1
        while left and covered < count:
            strides.append(covered * stride)
            covered *= left.pop(0)
        if covered != count:
            return None
    strides += [1] * len(left)  # axes of one element
    return Layout(shape, tuple(reversed(strides)))


def _chunks(layout: Layout) -> list[tuple[int, int]]:
    """Elements and innermost stride of each run of axes that lie evenly apart, outermost first."""
    result: list[tuple[int, int]] = []
    for count, stride in zip(layout.shape, layout.strides, strict=True):
        if count == 1:
            continue
        if result and result[-1][1] == count * stride:
            result[-1] = (result[-1][0] * count, stride)
        else:
            result.append((count, stride))
    return result


FLOAT, INDEX = "float32", "int64"


@dataclass(frozen=True)
class Result:
    """What a node hands on."""

    layout: Layout | None  # of its tensor; of a tuple (split) the tensor that its parts are views of; None: a number
    differentiable: bool = False  # in training, a gradient comes back for it


@dataclass(frozen=True)
class Call:
    """One node."""

    op: ListedOp  # as listed
    arguments: tuple[Result, ...]  # results of its tensor arguments, in the order of `op.tensors`
    parts_of: Result | None  # the tensor whose part the node takes out of a tuple; None: it takes none
    training: bool  # dropout is active, and gradients will be requested
    permuted_later: bool  # its result's axes are permuted, so that its gradient comes with permuted strides

    @property
    def output(self) -> Tensor:
        """Its result as a float32 tensor."""
        return floats(self.op.output)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Its tensor arguments as float32 tensors."""
        return tuple(floats(shape) for shape in self.op.tensors)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        return tuple(a.layout or contiguous(s) for a, s in zip(self.arguments, self.op.tensors, strict=True))

    @property
    def wanted(self) -> tuple[Tensor, ...]:
        return tuple(x for x, a in zip(self.inputs, self.arguments, strict=True) if a.differentiable)

    @property
    def is_tensor(self) -> bool:
        """Whether the result is on the device."""
        return self.op.output != NUMBER


def floats(shape: Shape) -> Tensor:
    """A float32 tensor."""
    return Tensor(shape, FLOAT)
