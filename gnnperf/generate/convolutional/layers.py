"""Layers of a residual network, op by op as PyTorch runs them on a GPU with cuDNN.

Each layer knows its input and its result, its forward ops, and its backward ops given the name of the gradient of its
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate.convolutional.plan import Gradients, Training
from gnnperf.generate.transformer.items import Item, fused, op, views
from gnnperf.generate.uses import Use
from gnnperf.graph import Tensor

# What layers are made of: an item of the program, what it does to memory, and whose gradients are final after it.

F, B = Phase.FORWARD, Phase.BACKWARD
FLOAT = "float32"


@dataclass(frozen=True)
class Named:
    """A tensor and its name in the account of memory."""

    name: str
    tensor: Tensor


@dataclass(frozen=True)
class Step:
    """One item.

    Attributes:
        item: of the program.
        use: of memory; None: it makes nothing and is none last use.
        parameters: numbers of elements of those whose gradients are final after it, in order.
    """

    item: Item
    use: Use | None = None
    parameters: tuple[int, ...] = ()


def takes(*names: str) -> tuple[str, ...]:
    """Names that are tensors' names; "" is a tensor that is always there."""
    return tuple(name for name in names if name)


def step(item: Item, taken: Sequence[str] = (), *made: Named) -> Step:
    """An op of a kernel, from what it takes and makes."""
    name = getattr(item, "name", "")
    return Step(item, Use(name, tuple(taken), tuple((m.name, m.tensor.num_bytes) for m in made)))


def silent(phase: Phase, *names: str) -> Step:
    """Ops that launch nothing."""
    return Step(views(phase, *names))


def cast(phase: Phase, of: Named, to: Named) -> Step:
    """A copy in another dtype."""
    return step(op("aten::copy_", phase, to.tensor, of.tensor), takes(of.name), to)


def parameter_as_used(training: Training, name: str, shape: tuple[int, ...]) -> tuple[tuple[Step, ...], Named]:
    """A parameter as convolutions and products take it: autocast makes a copy, once per step."""
    own = Named("", Tensor(shape, FLOAT))
    if not training.is_mixed:
        return (), own
    copy = Named(f"copy of {name}", Tensor(shape, training.dtype))
    return (silent(F, "to", "_to_copy", "empty_strided"), cast(F, own, copy)), copy


def turned(training: Training, phase: Phase, *tensors: Tensor) -> tuple[Step, ...]:
    """Channels to the end, or back, where matrix units want them and the program does not have them so.

    NVIDIA, Optimizing Convolutional Layers, "Tensor Layouts In Memory": the library converts, in kernels of its own.
    """
    if training.channels_last or not training.is_mixed:
        return ()
    return tuple(Step(fused("layout", phase, t, t), Use("triton_poi_fused_layout")) for t in tensors)


def with_gradients(training: Training, backward: Step, parameters: Sequence[Named]) -> tuple[Step, ...]:
    """A backward op that makes gradients of parameters, and what is done until they are final."""
    assert backward.use is not None, "an op has a use"
    temporary = [p.tensor.dtype != FLOAT or training.gradients is Gradients.ZEROED for p in parameters]
    gone = [p for p, is_gone in zip(parameters, temporary, strict=True) if is_gone]
    retained = [p for p, is_gone in zip(parameters, temporary, strict=True) if not is_gone]
    made = tuple((f"g {p.name}", p.tensor.num_bytes) for p in gone)
    stays = tuple(p.tensor.num_bytes for p in retained)
    use = Use(backward.use.op, backward.use.takes, (*backward.use.makes, *made), stays)
    first = Step(backward.item, use, tuple(p.tensor.numel for p in retained))
    return (first, *(each for parameter in gone for each in _to_final(training, parameter)))


def _to_final(training: Training, parameter: Named) -> list[Step]:
    """In float32, then added to the gradient that is there or kept."""
    full = Tensor(parameter.tensor.shape, FLOAT)
    name, zeroed = f"g {parameter.name}", training.gradients is Gradients.ZEROED
    result: list[Step] = []
    if parameter.tensor.dtype != FLOAT:
        copy = Named(f"full {parameter.name}", full)
        item = op("aten::copy_", B, full, parameter.tensor)
        retained = Step(item, Use("aten::copy_", (name,), (), (full.num_bytes,)), (full.numel,))
        result.append(step(item, (name,), copy) if zeroed else retained)
        name = copy.name
    if zeroed:
        result.append(Step(op("aten::add_", B, full, full), Use("aten::add_", (name,)), (full.numel,)))
    return result


_NO_SHAPE: tuple[None, ...] = (None,) * 8  # the rest of convolution_backward's arguments: they are no tensors


@dataclass(frozen=True)
class Convolution:
    """K filters of k x k over [N, C, I, I], padded by k // 2.

    Attributes:
        name: of the result.
        x: input.
        channels: K.
        kernel: k.
        stride: of both axes.
        bias: whether it has one.
        has_input_gradient: false for images.
    """

    training: Training
    name: str
    x: Named
    channels: int
    kernel: int
    stride: int = 1
    bias: bool = False
    has_input_gradient: bool = True

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """[K, C, k, k]."""
        return (self.channels, self.x.tensor.shape[1], self.kernel, self.kernel)

    @property
    def y(self) -> Named:
        """[N, K, P, P] with P = (I + 2 (k // 2) - k) // stride + 1."""
        batch, _, image, _ = self.x.tensor.shape
        edge = (image + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1
        return Named(self.name, Tensor((batch, self.channels, edge, edge), self.x.tensor.dtype))

    @property
    def parameters(self) -> tuple[int, ...]:
        """Elements of weight and bias."""
        return (Tensor(self.weight, FLOAT).numel, *((self.channels,) if self.bias else ()))

    def forward(self) -> tuple[Step, ...]:
        """The product, after copies of parameters and before the bias, which is added."""
        copies, weight = parameter_as_used(self.training, f"{self.name}.weight", self.weight)
        result = (
            silent(F, "conv2d"), *copies, silent(F, "convolution", "_convolution"),
            *turned(self.training, F, self.x.tensor),
            step(op("aten::cudnn_convolution", F, self.x.tensor, weight.tensor,
                    values=["", "", *self._geometry(padding_first=True), "1"]),
                 takes(self.x.name, weight.name), self.y),
            *turned(self.training, F, self.y.tensor),
        )  # fmt: skip
        if not self.bias:
            return result
        more, bias = parameter_as_used(self.training, f"{self.name}.bias", (self.channels,))
        row = Tensor((1, self.channels, 1, 1), bias.tensor.dtype)
        added = step(op("aten::add_", F, self.y.tensor, row), takes(self.name, bias.name))
        return (*result, *more, silent(F, "reshape", "view"), added)

    def backward(self, gradient: str) -> tuple[tuple[Step, ...], str]:
        """Both products in one op, and the bias's sum."""
        made = Named(f"d_x {self.name}", self.x.tensor)
        dtype, weight = self.x.tensor.dtype, Tensor(self.weight, self.x.tensor.dtype)
        mask = f"[{self.has_input_gradient}, True, False]"
        values = ["", "", "", "", *self._geometry(padding_first=False), "False", "[0, 0]", "1", mask]
        item = op("aten::convolution_backward", B, self.y.tensor, self.x.tensor, weight, *_NO_SHAPE, values=values)
        held = takes(gradient, self.x.name, f"copy of {self.name}.weight" if self.training.is_mixed else "")
        product = step(item, held, *((made,) if self.has_input_gradient else ()))
        result = [*turned(self.training, B, self.y.tensor)]
        result += with_gradients(self.training, product, [Named(f"{self.name}.weight", weight)])
        result += turned(self.training, B, *((self.x.tensor,) if self.has_input_gradient else ()))
        if self.bias:
            total = step(op("aten::sum", B, self.y.tensor, None, None, values=["", "[0, 2, 3]", "False"]), (gradient,))
            result += with_gradients(
                self.training, total, [Named(f"{self.name}.bias", Tensor((self.channels,), dtype))]
            )
        return tuple(result), made.name

    def _geometry(self, *, padding_first: bool) -> tuple[str, str, str]:
        padding, stride = (f"[{n}, {n}]" for n in (self.kernel // 2, self.stride))
        return (padding, stride, "[1, 1]") if padding_first else (stride, padding, "[1, 1]")


@dataclass(frozen=True)
class Norm:
    """Batch norm: statistics over N and both axes; its parameters and statistics are float32 in any case."""

    training: Training
    name: str
    x: Named

    @property
    def y(self) -> Named:
        """As large as the input."""
        return Named(self.name, self.x.tensor)

    @property
    def parameters(self) -> tuple[int, ...]:
        """Scale and shift."""
        return (self._row.numel, self._row.numel)

    @property
    def _row(self) -> Tensor:
        return Tensor((self.x.tensor.shape[1],), FLOAT)

    def forward(self) -> tuple[Step, ...]:
        """A counter, and the norm, which keeps the mean and the deviation."""
        mean, deviation = (Named(f"{self.name}.{which}", self._row) for which in ("mean", "deviation"))
        return (
            step(op("aten::add_", F, Tensor((), "int64"), None)),
            silent(F, "batch_norm", "_batch_norm_impl_index", "empty", "empty_like", "empty", "empty"),
            step(op("aten::cudnn_batch_norm", F, self.x.tensor, *[self._row] * 4,
                    values=["", "", "", "", "", "True", "0.1", "1e-05"]),
                 (self.x.name,), self.y, mean, deviation),
        )  # fmt: skip

    def backward(self, gradient: str) -> tuple[tuple[Step, ...], str]:
        """Gradients of input, scale and shift."""
        made = Named(f"d_x {self.name}", self.x.tensor)
        item = op("aten::cudnn_batch_norm_backward", B, self.x.tensor, self.x.tensor, *[self._row] * 5)
        held = (gradient, self.x.name, f"{self.name}.mean", f"{self.name}.deviation")
        names = [Named(f"{self.name}.{which}", self._row) for which in ("scale", "shift")]
        return with_gradients(self.training, step(item, held, made), names), made.name


@dataclass(frozen=True)
class Activation:
    """ReLU; in place it is in its input's memory. Its result is what its backward needs."""

    name: str
    x: Named
    inplace: bool
    parameters: tuple[int, ...] = ()

    @property
    def y(self) -> Named:
        """As large as the input, or the input itself."""
        return self.x if self.inplace else Named(self.name, self.x.tensor)

    def forward(self) -> tuple[Step, ...]:
        """The larger one of the input and zero."""
        if self.inplace:
            return (silent(F, "relu_"), step(op("aten::clamp_min_", F, self.x.tensor, None), (self.x.name,)))
        return (silent(F, "relu"), step(op("aten::clamp_min", F, self.x.tensor, None), (self.x.name,), self.y))

    def backward(self, gradient: str) -> tuple[tuple[Step, ...], str]:
        """Zero where the result is."""
        made = Named(f"d_x {self.name}", self.x.tensor)
        item = op("aten::threshold_backward", B, self.x.tensor, self.x.tensor, None)
        return (step(item, (gradient, self.y.name), made),), made.name


@dataclass(frozen=True)
class Pool:
    """The largest of 3 x 3, with stride 2 and padding 1; it keeps where each was."""

    name: str
    x: Named
    parameters: tuple[int, ...] = ()

    @property
    def y(self) -> Named:
        """[N, C, P, P] with P = (I - 1) // 2 + 1."""
        batch, channels, image, _ = self.x.tensor.shape
        edge = (image - 1) // 2 + 1
        return Named(self.name, Tensor((batch, channels, edge, edge), self.x.tensor.dtype))

    def forward(self) -> tuple[Step, ...]:
        """Result and places."""
        places = Named(f"{self.name}.places", Tensor(self.y.tensor.shape, "int64"))
        item = op("aten::max_pool2d_with_indices", F, self.x.tensor, None, None, None,
                  values=["", "[3, 3]", "[2, 2]", "[1, 1]"])  # fmt: skip
        return (silent(F, "max_pool2d"), step(item, (self.x.name,), self.y, places))

    def backward(self, gradient: str) -> tuple[tuple[Step, ...], str]:
        """To the places."""
        made = Named(f"d_x {self.name}", self.x.tensor)
        item = op("aten::max_pool2d_with_indices_backward", B, self.y.tensor, self.x.tensor)
        return (step(item, (gradient, self.x.name, f"{self.name}.places"), made),), made.name


@dataclass(frozen=True)
class Sum:
    """What a block computed and its shortcut; in place it is in the memory of the former."""

    name: str
    x: Named
    shortcut: Named
    inplace: bool

    @property
    def y(self) -> Named:
        """As large as both."""
        return self.x if self.inplace else Named(self.name, self.x.tensor)

    def forward(self) -> tuple[Step, ...]:
        """One op."""
        both = (self.x.name, self.shortcut.name)
        if self.inplace:
            return (step(op("aten::add_", F, self.x.tensor, self.x.tensor), both),)
        return (step(op("aten::add", F, self.x.tensor, self.x.tensor), both, self.y),)


def meeting(main: str, side: str, tensor: Tensor) -> tuple[Step, ...]:
    """Gradients of a block's input from both of its ways: autograd adds the later one to the earlier one."""
    return (Step(op("aten::add_", B, tensor, tensor), Use("aten::add_", (side, main))),)
