"""The layers of a residual network in order, and its passes: all forward ops, then all backward ops.

images - stem - [pool] - block - block - ... - average - output layer - loss

block    x -- conv norm relu -- conv norm [relu -- conv norm] -- + -- relu
         `------------- nothing, or conv [norm] ---------------'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gnnperf.generate.convolutional.head import Head
from gnnperf.generate.convolutional.layers import Activation, Convolution, Norm, Pool, Sum, meeting
from gnnperf.generate.convolutional.plan import Block, ConvolutionalPlan
from gnnperf.generate.convolutional.steps import FLOAT, F, Named, Step, cast
from gnnperf.graph import Tensor

Layer = Convolution | Norm | Activation | Pool
COLORS = 3


@dataclass(frozen=True)
class Residual:
    """A block: two ways from its input to a sum, and an activation."""

    x: Named
    main: tuple[Layer, ...]
    shortcut: tuple[Layer, ...]
    total: Sum
    last: Activation

    def forward(self) -> tuple[Step, ...]:
        """The long way first."""
        layers = (*self.main, *self.shortcut, self.total, self.last)
        return tuple(step for layer in layers for step in layer.forward())

    def backward(self, gradient: str) -> tuple[tuple[Step, ...], str]:
        """What was computed last comes first: the shortcut, then the long way; their gradients are added."""
        last, both = self.last.backward(gradient)
        aside, side = _backward(self.shortcut, both)
        along, main = _backward(self.main, both)
        return (*last, *aside, *along, *meeting(main, side, self.x.tensor)), side

    @property
    def parameters(self) -> tuple[int, ...]:
        """Of both ways."""
        return tuple(n for layer in (*self.main, *self.shortcut) for n in layer.parameters)


@dataclass(frozen=True)
class Passes:
    """A step but for the optimizer.

    Attributes:
        forward, backward: in order.
        parameters: elements of each, in the order of layers.
        norm_channels: of each norm: it keeps two running statistics and a counter.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    parameters: tuple[int, ...]
    norm_channels: tuple[int, ...]


def network_passes(plan: ConvolutionalPlan) -> Passes:
    """The ops of a network."""
    before, images = _images(plan)
    layers: list[Layer | Residual] = list(_stem(plan, images))
    x = layers[-1].y if not isinstance(layers[-1], Residual) else layers[-1].last.y
    for block in _blocks(plan, x):
        layers.append(block)
        x = block.last.y
    head = Head(plan.training, x, plan.network.classes)
    forward = [*before, *(step for layer in layers for step in layer.forward()), *head.forward()]
    ending, gradient = head.backward()
    backward, _ = _backward(layers, gradient)
    parameters = [n for layer in layers for n in layer.parameters]
    return Passes(tuple(forward), (*ending, *backward), (*parameters, *head.parameters), tuple(_norms(layers)))


def _images(plan: ConvolutionalPlan) -> tuple[tuple[Step, ...], Named]:
    """The input, which is there before the step; autocast makes a copy of it."""
    edge, training = plan.network.image, plan.training
    own = Named("", Tensor((training.batch, COLORS, edge, edge), FLOAT))
    if not training.is_mixed:
        return (), own
    copy = Named("images", Tensor(own.tensor.shape, training.dtype))
    return (cast(F, own, copy),), copy


def _stem(plan: ConvolutionalPlan, images: Named) -> Iterator[Layer]:
    network, training = plan.network, plan.training
    conv = Convolution(training, "stem", images, network.stem_channels, network.stem_kernel, network.stem_stride,
                       has_input_gradient=False)  # fmt: skip
    norm = Norm(training, "stem.norm", conv.y)
    relu = Activation("stem.relu", norm.y, network.inplace)
    yield from (conv, norm, relu)
    if network.stem_pool:
        yield Pool("stem.pool", relu.y)


def _blocks(plan: ConvolutionalPlan, x: Named) -> Iterator[Residual]:
    network = plan.network
    for stage, (count, width, stride) in enumerate(zip(network.blocks, network.widths, network.strides, strict=True)):
        for number in range(count):
            block = _block(plan, f"stage {stage} block {number}", x, width, stride if number == 0 else 1)
            yield block
            x = block.last.y


def _block(plan: ConvolutionalPlan, name: str, x: Named, width: int, stride: int) -> Residual:
    network = plan.network
    out = width * network.expansion
    shapes = [(width, 3, stride), (width, 3, 1)]  # channels, kernel, stride
    if network.block is Block.BOTTLENECK:
        shapes = [(width, 1, 1), (width, 3, stride), (out, 1, 1)]
    main = _main(plan, name, x, shapes)
    same = stride == 1 and x.tensor.shape[1] == out
    shortcut = () if same else _shortcut(plan, name, x, out, stride)
    ends = shortcut[-1].y if shortcut else x
    total = Sum(f"{name} sum", main[-1].y, ends, network.inplace)
    return Residual(x, main, shortcut, total, Activation(f"{name} relu", total.y, network.inplace))


def _main(plan: ConvolutionalPlan, name: str, x: Named, shapes: Sequence[tuple[int, int, int]]) -> tuple[Layer, ...]:
    """Convolutions with norms, activations between them."""
    layers: list[Layer] = []
    for place, (channels, kernel, stride) in enumerate(shapes):
        if layers:
            layers.append(Activation(f"{name} relu {place}", layers[-1].y, plan.network.inplace))
        before = layers[-1].y if layers else x
        conv = Convolution(plan.training, f"{name} conv {place}", before, channels, kernel, stride)
        layers += [conv, Norm(plan.training, f"{name} norm {place}", conv.y)]
    return tuple(layers)


def _shortcut(plan: ConvolutionalPlan, name: str, x: Named, channels: int, stride: int) -> tuple[Layer, ...]:
    with_norm = plan.network.shortcut_norm
    conv = Convolution(plan.training, f"{name} shortcut", x, channels, 1, stride, bias=not with_norm)
    return (conv, Norm(plan.training, f"{name} shortcut norm", conv.y)) if with_norm else (conv,)


def _backward(layers: Sequence[Layer | Residual], gradient: str) -> tuple[tuple[Step, ...], str]:
    """From the last layer to the first: ops, and the name of the gradient of the first one's input."""
    found: list[Step] = []
    for layer in reversed(layers):
        steps, gradient = layer.backward(gradient)
        found += steps
    return tuple(found), gradient


def _norms(layers: Sequence[Layer | Residual]) -> Iterator[int]:
    for layer in layers:
        inner = (*layer.main, *layer.shortcut) if isinstance(layer, Residual) else (layer,)
        yield from (each.x.tensor.shape[1] for each in inner if isinstance(each, Norm))
