"""Call: one node of an operator list, with what its arguments are; and what its result is."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.graph import Tensor
from research.listed.layout import Layout, Shape, contiguous
from research.listed.operator_list import NUMBER, ListedOp

FLOAT, INDEX = "float32", "int64"


@dataclass(frozen=True)
class Result:
    """What a node hands on.

    Attributes:
        layout: of its tensor; of a tuple (split) the tensor that its parts are views of; None: a number.
        differentiable: in training, a gradient comes back for it.
    """

    layout: Layout | None
    differentiable: bool = False


@dataclass(frozen=True)
class Call:
    """One node.

    Attributes:
        op: as listed.
        arguments: results of its tensor arguments, in the order of `op.tensors`.
        parts_of: the tensor whose part the node takes out of a tuple; None: it takes none.
        training: dropout is active, and gradients will be requested.
        permuted_later: its result's axes are permuted, so that its gradient comes with permuted strides.
    """

    op: ListedOp
    arguments: tuple[Result, ...]
    parts_of: Result | None
    training: bool
    permuted_later: bool

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
        """Of its tensor arguments."""
        return tuple(a.layout or contiguous(s) for a, s in zip(self.arguments, self.op.tensors, strict=True))

    @property
    def wanted(self) -> tuple[Tensor, ...]:
        """Arguments that get a gradient."""
        return tuple(x for x, a in zip(self.inputs, self.arguments, strict=True) if a.differentiable)

    @property
    def is_tensor(self) -> bool:
        """Whether the result is on the device."""
        return self.op.output != NUMBER


def floats(shape: Shape) -> Tensor:
    """A float32 tensor."""
    return Tensor(shape, FLOAT)
