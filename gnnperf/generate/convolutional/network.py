"""The layers of a residual network in order, and its passes: all forward ops, then all backward ops.

images - stem - [pool] - block - block - ... - average - output layer - loss

block    x -- conv norm relu -- conv norm [relu -- conv norm] -- + -- relu
         `------------- nothing, or conv [norm] ---------------'
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gnnperf.generate.convolutional import layers as parts
from gnnperf.generate.convolutional.plan import WIDENED, Block, ConvolutionalPlan, Training
from gnnperf.generate.transformer.items import Line, op, used, views
from gnnperf.graph import Tensor

# The end of a classifier: average over the image, output layer, cross entropy, and back.


@dataclass(frozen=True)
class Head:
    """[N, C, I, I] to a loss."""

    training: Training
    x: parts.Named  # of the last block
    classes: int  # K

    @property
    def parameters(self) -> tuple[int, ...]:
        """Weight and bias of the output layer."""
        return (self.classes * self._channels, self.classes)

    @property
    def _channels(self) -> int:
        return self.x.tensor.shape[1]

    def _rows(self, columns: int, dtype: str) -> Tensor:
        return Tensor((self.x.tensor.shape[0], columns), dtype)

    def forward(self) -> parts.Lines:
        """Mean, product, logarithm of softmax, loss."""
        dtype = self.x.tensor.dtype
        mean, logits = self._rows(self._channels, dtype), parts.Named("logits", self._rows(self.classes, dtype))
        weights, weight = parts.parameter_as_used(self.training, "fc.weight", (self.classes, self._channels))
        biases, bias = parts.parameter_as_used(self.training, "fc.bias", (self.classes,))
        across = Tensor((self._channels, self.classes), dtype)
        full = parts.Named("full", self._rows(self.classes, parts.FLOAT)) if self.training.is_mixed else logits
        logarithms = self._rows(self.classes, parts.FLOAT)
        average = op("aten::mean", parts.F, self.x.tensor, None, None, None, values=["", "[-1, -2]", "True", ""])
        softmax = op("aten::_log_softmax", parts.F, full.tensor, None, None, values=["", "1", "False"])
        return (
            views(parts.F, "adaptive_avg_pool2d"),
            *used(average, self.x.name, mean=mean),
            views(parts.F, "flatten", "view"), *weights, *biases, views(parts.F, "linear", "t", "transpose"),
            *used(op("aten::addmm", parts.F, bias.tensor, mean, across), f"mean {weight.name} {bias.name}",
                  logits=logits.tensor),
            views(parts.F, "cross_entropy_loss"),
            *(parts.copied(parts.F, logits, full) if self.training.is_mixed else ()),
            *used(softmax, full.name, logarithms=logarithms),
            *used(op("aten::nll_loss_forward", parts.F, logarithms, self._labels), "logarithms"),
        )  # fmt: skip

    def backward(self) -> tuple[parts.Lines, str]:
        """From the loss to the gradient of the last block's result."""
        dtype, full = self.x.tensor.dtype, self._rows(self.classes, parts.FLOAT)
        scores = parts.Named("d_full", full)
        logits = parts.Named("d_logits", self._rows(self.classes, dtype)) if self.training.is_mixed else scores
        mean, weight = self._rows(self._channels, dtype), Tensor((self.classes, self._channels), dtype)
        total = op("aten::sum", parts.B, logits.tensor, None, None, values=["", "[0]", "True"])
        product = op("aten::mm", parts.B, Tensor((self.classes, self.x.tensor.shape[0]), dtype), mean)
        taken = f"{logits.name} {parts.copy_name(self.training, 'fc.weight')}"
        return (
            *used(op("aten::fill_", parts.B, Tensor((), parts.FLOAT), None)),
            *used(op("aten::nll_loss_backward", parts.B, Tensor((), parts.FLOAT), full, self._labels), "logarithms",
                  d_logarithms=full),
            *used(op("aten::_log_softmax_backward_data", parts.B, full, full), "d_logarithms logarithms", d_full=full),
            *(parts.copied(parts.B, scores, logits) if self.training.is_mixed else ()),
            views(parts.B, "t", "transpose"),
            *used(op("aten::mm", parts.B, logits.tensor, weight), taken, d_mean=mean),
            *parts.with_gradients(used(total, logits.name), parts.Named("fc.bias", Tensor((self.classes,), dtype))),
            views(parts.B, "t", "transpose"),
            *parts.with_gradients(used(product, f"{logits.name} mean"), parts.Named("fc.weight", weight)),
            views(parts.B, "t", "transpose", "view", "expand"),
            *used(op("aten::div", parts.B, self.x.tensor, None), "d_mean", d_x=self.x.tensor),
        ), "d_x"  # fmt: skip

    @property
    def _labels(self) -> Tensor:
        return Tensor((self.x.tensor.shape[0],), "int64")


Layer = parts.Convolution | parts.Norm | parts.Activation | parts.Pool
COLORS = 3


@dataclass(frozen=True)
class Residual:
    """A block: two ways from its input to a sum, and an activation."""

    x: parts.Named
    main: tuple[Layer, ...]
    shortcut: tuple[Layer, ...]
    total: parts.Sum
    last: parts.Activation

    def forward(self) -> parts.Lines:
        """The long way first."""
        layers = (*self.main, *self.shortcut, self.total, self.last)
        return tuple(line for layer in layers for line in layer.forward())

    def backward(self, gradient: str) -> tuple[parts.Lines, str]:
        """What was computed last comes first: the shortcut, then the long way; their gradients are added."""
        last, both = self.last.backward(gradient)
        aside, side = _backward(self.shortcut, both)
        along, main = _backward(self.main, both)
        added = op("aten::add_", parts.B, self.x.tensor, self.x.tensor)  # by autograd: the later one to the earlier one
        return (*last, *aside, *along, *used(added, f"{side} {main}")), side

    @property
    def parameters(self) -> tuple[int, ...]:
        """Of both ways."""
        return tuple(n for layer in (*self.main, *self.shortcut) for n in layer.parameters)


@dataclass(frozen=True)
class Passes:
    """A step but for the optimizer."""

    # forward, backward: in order
    forward: parts.Lines
    backward: parts.Lines
    parameters: tuple[int, ...]  # elements of each, in the order of layers
    norm_channels: tuple[int, ...]  # of each norm: it keeps two running statistics and a counter


def network_passes(plan: ConvolutionalPlan) -> Passes:
    """The ops of a network."""
    before, images = _images(plan)
    stem = tuple(_stem(plan, images))
    blocks = tuple(_blocks(plan, stem[-1].y))
    layers: tuple[Layer | Residual, ...] = (*stem, *blocks)
    head = Head(plan.training, blocks[-1].last.y, plan.network.classes)
    forward = [*before, *(line for layer in layers for line in layer.forward()), *head.forward()]
    ending, gradient = head.backward()
    backward, _ = _backward(layers, gradient)
    parameters = [n for layer in layers for n in layer.parameters]
    inner = (*stem, *(layer for block in blocks for layer in (*block.main, *block.shortcut)))
    norms = tuple(each.x.tensor.shape[1] for each in inner if isinstance(each, parts.Norm))
    return Passes(tuple(forward), (*ending, *backward), (*parameters, *head.parameters), norms)


def _images(plan: ConvolutionalPlan) -> tuple[parts.Lines, parts.Named]:
    """The input, which is there before the step; autocast makes a copy of it."""
    edge, training = plan.network.image, plan.training
    own = parts.Named("", Tensor((training.batch, COLORS, edge, edge), parts.FLOAT))
    if not training.is_mixed:
        return (), own
    copy = parts.Named("images", Tensor(own.tensor.shape, training.dtype))
    return parts.copied(parts.F, own, copy), copy


def _stem(plan: ConvolutionalPlan, images: parts.Named) -> Iterator[Layer]:
    network, training = plan.network, plan.training
    conv = parts.Convolution(training, "stem", images, network.stem_channels, network.stem_kernel, network.stem_stride,
                       has_input_gradient=False)  # fmt: skip
    norm = parts.Norm("stem.norm", conv.y)
    relu = parts.Activation("stem.relu", norm.y, network.inplace)
    yield from (conv, norm, relu)
    if network.stem_pool:
        yield parts.Pool("stem.pool", relu.y)


def _blocks(plan: ConvolutionalPlan, x: parts.Named) -> Iterator[Residual]:
    network = plan.network
    for stage, (count, width, stride) in enumerate(zip(network.blocks, network.widths, network.strides, strict=True)):
        for number in range(count):
            block = _block(plan, f"stage{stage}.block{number}", x, width, stride if number == 0 else 1)
            yield block
            x = block.last.y


def _block(plan: ConvolutionalPlan, name: str, x: parts.Named, width: int, stride: int) -> Residual:
    """Convolutions with norms, activations between them, next to a shortcut."""
    network = plan.network
    out, shapes = width, [(width, 3, stride), (width, 3, 1)]  # channels, kernel, stride
    if network.block is Block.BOTTLENECK:
        out = width * WIDENED
        shapes = [(width, 1, 1), (width, 3, stride), (out, 1, 1)]
    main: list[Layer] = []
    for place, (channels, kernel, step) in enumerate(shapes):
        if main:
            main.append(parts.Activation(f"{name}.relu{place}", main[-1].y, network.inplace))
        before = main[-1].y if main else x
        conv = parts.Convolution(plan.training, f"{name}.conv{place}", before, channels, kernel, step)
        main += [conv, parts.Norm(f"{name}.norm{place}", conv.y)]
    same = stride == 1 and x.tensor.shape[1] == out
    shortcut: tuple[Layer, ...] = ()
    if not same:
        conv = parts.Convolution(plan.training, f"{name}.shortcut", x, out, 1, stride, bias=not network.shortcut_norm)
        norm = parts.Norm(f"{name}.shortcut.norm", conv.y)
        shortcut = (conv, norm) if network.shortcut_norm else (conv,)
    ends = shortcut[-1].y if shortcut else x
    total = parts.Sum(f"{name}.sum", main[-1].y, ends, network.inplace)
    return Residual(x, tuple(main), shortcut, total, parts.Activation(f"{name}.relu", total.y, network.inplace))


def _backward(layers: Sequence[Layer | Residual], gradient: str) -> tuple[parts.Lines, str]:
    """From the last layer to the first: ops, and the name of the gradient of the first one's input."""
    result: list[Line] = []
    for layer in reversed(layers):
        lines, gradient = layer.backward(gradient)
        result += lines
    return tuple(result), gradient
