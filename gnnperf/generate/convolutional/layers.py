"""Layers of a residual network, op by op as PyTorch runs them on a GPU with cuDNN.

Each layer knows its input and its result, its forward ops, and its backward ops given the name of the gradient of its
result.
"""

from dataclasses import dataclass, replace

from gnnperf.core import Phase
from gnnperf.generate.convolutional.plan import Training
from gnnperf.generate.transformer.items import Line, fused, op, used, views
from gnnperf.generate.uses import Use
from gnnperf.graph import Tensor

F, B = Phase.FORWARD, Phase.BACKWARD
FLOAT = "float32"
Lines = tuple[Line, ...]  # items, and after each op what it takes and makes


@dataclass(frozen=True)
class Named:
    """A tensor and its name in the account of memory; "" is one that is always there."""

    name: str
    tensor: Tensor


def copied(phase: Phase, of: Named, to: Named) -> Lines:
    """A copy in another dtype."""
    return used(op("aten::copy_", phase, to.tensor, of.tensor), of.name, **{to.name: to.tensor})


def parameter_as_used(training: Training, name: str, shape: tuple[int, ...]) -> tuple[Lines, Named]:
    """A parameter as convolutions and products take it: autocast makes a copy, once per step."""
    own = Named("", Tensor(shape, FLOAT))
    if not training.is_mixed:
        return (), own
    copy = Named(copy_name(training, name), Tensor(shape, training.dtype))
    return (views(F, "to", "_to_copy", "empty_strided"), *copied(F, own, copy)), copy


def copy_name(training: Training, name: str) -> str:
    """Of the copy that autocast makes of a parameter, if it makes one."""
    return f"{name}.copy" if training.is_mixed else ""


def turned(training: Training, phase: Phase, *tensors: Tensor) -> Lines:
    """Channels to the end, or back, where matrix units want them and the program does not have them so.

    NVIDIA, Optimizing Convolutional Layers, "Tensor Layouts In Memory": the library converts, in kernels of its own.
    """
    if training.channels_last or not training.is_mixed:
        return ()
    return tuple(line for t in tensors for line in used(fused("layout", phase, t, t)))


def with_gradients(backward: Lines, *parameters: Named) -> Lines:
    """A backward op that makes gradients of parameters: float32 ones stay, others are copied to such."""
    item, its_use = backward
    assert isinstance(its_use, Use), "as `used` has it"
    gone = [p for p in parameters if p.tensor.dtype != FLOAT]
    made = tuple((f"d.{p.name}", p.tensor.num_bytes) for p in gone)
    stays = tuple(p.tensor.num_bytes for p in parameters if p.tensor.dtype == FLOAT)
    result: list[Line] = [item, replace(its_use, makes=(*its_use.makes, *made), gradients_bytes=stays)]
    for parameter in gone:
        full = Tensor(parameter.tensor.shape, FLOAT)
        copy = used(op("aten::copy_", B, full, parameter.tensor), f"d.{parameter.name}")
        result += with_gradients(copy, Named("", full))
    return tuple(result)


_NO_SHAPE: tuple[None, ...] = (None,) * 8  # the rest of convolution_backward's arguments: they are no tensors


@dataclass(frozen=True)
class Convolution:
    """K filters of k x k over [N, C, I, I], padded by k // 2."""

    training: Training
    name: str  # of the result
    x: Named  # input
    channels: int  # K
    kernel: int  # k
    stride: int = 1  # of both axes
    bias: bool = False  # whether it has one
    has_input_gradient: bool = True  # false for images

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

    def forward(self) -> Lines:
        """The product, after copies of parameters and before the bias, which is added."""
        copies, weight = parameter_as_used(self.training, f"{self.name}.weight", self.weight)
        product = op("aten::cudnn_convolution", F, self.x.tensor, weight.tensor,
                     values=["", "", *self._geometry, "[1, 1]", "1"])  # fmt: skip
        result = (
            views(F, "conv2d"), *copies, views(F, "convolution", "_convolution"),
            *turned(self.training, F, self.x.tensor),
            *used(product, f"{self.x.name} {weight.name}", **{self.name: self.y.tensor}),
            *turned(self.training, F, self.y.tensor),
        )  # fmt: skip
        if not self.bias:
            return result
        more, bias = parameter_as_used(self.training, f"{self.name}.bias", (self.channels,))
        row = Tensor((1, self.channels, 1, 1), bias.tensor.dtype)
        added = used(op("aten::add_", F, self.y.tensor, row), f"{self.name} {bias.name}")
        return (*result, *more, views(F, "reshape", "view"), *added)

    def backward(self, gradient: str) -> tuple[Lines, str]:
        """Both products in one op, and the bias's sum."""
        made, name = f"d_x.{self.name}", f"{self.name}.weight"
        dtype, weight = self.x.tensor.dtype, Tensor(self.weight, self.x.tensor.dtype)
        mask = f"[{self.has_input_gradient}, True, False]"
        values = ["", "", "", "", *reversed(self._geometry), "[1, 1]", "False", "[0, 0]", "1", mask]
        item = op("aten::convolution_backward", B, self.y.tensor, self.x.tensor, weight, *_NO_SHAPE, values=values)
        held = f"{gradient} {self.x.name} {copy_name(self.training, name)}"
        inputs = {made: self.x.tensor} if self.has_input_gradient else {}
        result = [*turned(self.training, B, self.y.tensor)]
        result += with_gradients(used(item, held, **inputs), Named(name, weight))
        result += turned(self.training, B, *inputs.values())
        if self.bias:
            total = op("aten::sum", B, self.y.tensor, None, None, values=["", "[0, 2, 3]", "False"])
            result += with_gradients(used(total, gradient), Named(f"{self.name}.bias", Tensor((self.channels,), dtype)))
        return tuple(result), made

    @property
    def _geometry(self) -> tuple[str, str]:
        """Padding and stride."""
        return f"[{self.kernel // 2}, {self.kernel // 2}]", f"[{self.stride}, {self.stride}]"


@dataclass(frozen=True)
class Norm:
    """Batch norm: statistics over N and both axes; its parameters and statistics are float32 in any case."""

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

    def forward(self) -> Lines:
        """A counter, and the norm, which keeps the mean and the deviation."""
        item = op("aten::cudnn_batch_norm", F, self.x.tensor, *[self._row] * 4,
                  values=["", "", "", "", "", "True", "0.1", "1e-05"])  # fmt: skip
        retained = {f"{self.name}.{which}": self._row for which in ("mean", "deviation")}
        return (
            *used(op("aten::add_", F, Tensor((), "int64"), None)),
            views(F, "batch_norm", "_batch_norm_impl_index", "empty", "empty_like", "empty", "empty"),
            *used(item, self.x.name, **{self.name: self.x.tensor, **retained}),
        )

    def backward(self, gradient: str) -> tuple[Lines, str]:
        """Gradients of input, scale and shift."""
        made, held = f"d_x.{self.name}", f"{gradient} {self.x.name} {self.name}.mean {self.name}.deviation"
        item = op("aten::cudnn_batch_norm_backward", B, self.x.tensor, self.x.tensor, *[self._row] * 5)
        names = (Named(f"{self.name}.{which}", self._row) for which in ("scale", "shift"))
        return with_gradients(used(item, held, **{made: self.x.tensor}), *names), made


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

    def forward(self) -> Lines:
        """The larger one of the input and zero."""
        if self.inplace:
            return (views(F, "relu_"), *used(op("aten::clamp_min_", F, self.x.tensor, None), self.x.name))
        item = op("aten::clamp_min", F, self.x.tensor, None)
        return (views(F, "relu"), *used(item, self.x.name, **{self.name: self.x.tensor}))

    def backward(self, gradient: str) -> tuple[Lines, str]:
        """Zero where the result is."""
        made = f"d_x.{self.name}"
        item = op("aten::threshold_backward", B, self.x.tensor, self.x.tensor, None)
        return used(item, f"{gradient} {self.y.name}", **{made: self.x.tensor}), made


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

    def forward(self) -> Lines:
        """Result and places."""
        places = Tensor(self.y.tensor.shape, "int64")
        item = op("aten::max_pool2d_with_indices", F, self.x.tensor, None, None, None,
                  values=["", "[3, 3]", "[2, 2]", "[1, 1]"])  # fmt: skip
        made = {self.name: self.y.tensor, f"{self.name}.places": places}
        return (views(F, "max_pool2d"), *used(item, self.x.name, **made))

    def backward(self, gradient: str) -> tuple[Lines, str]:
        """To the places."""
        made = f"d_x.{self.name}"
        item = op("aten::max_pool2d_with_indices_backward", B, self.y.tensor, self.x.tensor)
        return used(item, f"{gradient} {self.x.name} {self.name}.places", **{made: self.x.tensor}), made


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

    def forward(self) -> Lines:
        """One op."""
        item = op("aten::add_" if self.inplace else "aten::add", F, self.x.tensor, self.x.tensor)
        made = {} if self.inplace else {self.name: self.x.tensor}
        return used(item, f"{self.x.name} {self.shortcut.name}", **made)
