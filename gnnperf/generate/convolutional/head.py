"""The end of a classifier: average over the image, output layer, cross entropy, and back."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.generate.convolutional.plan import Training
from gnnperf.generate.convolutional.steps import (
    FLOAT,
    B,
    F,
    Named,
    Step,
    cast,
    parameter_as_used,
    silent,
    step,
    takes,
    with_gradients,
)
from gnnperf.generate.transformer.items import op
from gnnperf.graph import Tensor


@dataclass(frozen=True)
class Head:
    """[N, C, I, I] to a loss.

    Attributes:
        x: of the last block.
        classes: K.
    """

    training: Training
    x: Named
    classes: int

    @property
    def parameters(self) -> tuple[int, ...]:
        """Weight and bias of the output layer."""
        return (self.classes * self._channels, self.classes)

    @property
    def _channels(self) -> int:
        return self.x.tensor.shape[1]

    @property
    def _batch(self) -> int:
        return self.x.tensor.shape[0]

    def _named(self, name: str, columns: int, dtype: str) -> Named:
        return Named(name, Tensor((self._batch, columns), dtype))

    def forward(self) -> tuple[Step, ...]:
        """Mean, product, logarithm of softmax, loss."""
        dtype = self.x.tensor.dtype
        mean, logits = self._named("mean", self._channels, dtype), self._named("logits", self.classes, dtype)
        weights, weight = parameter_as_used(self.training, "fc.weight", (self.classes, self._channels))
        biases, bias = parameter_as_used(self.training, "fc.bias", (self.classes,))
        across = Tensor((self._channels, self.classes), dtype)
        full = self._named("full logits", self.classes, FLOAT) if self.training.is_mixed else logits
        logarithms = self._named("logarithms", self.classes, FLOAT)
        return (
            silent(F, "adaptive_avg_pool2d"),
            step(op("aten::mean", F, self.x.tensor, None, None, None, values=["", "[-1, -2]", "True", ""]),
                 (self.x.name,), mean),
            silent(F, "flatten", "view"), *weights, *biases, silent(F, "linear", "t", "transpose"),
            step(op("aten::addmm", F, bias.tensor, mean.tensor, across), takes("mean", weight.name, bias.name), logits),
            silent(F, "cross_entropy_loss"),
            *([cast(F, logits, full)] if self.training.is_mixed else []),
            step(op("aten::_log_softmax", F, full.tensor, None, None, values=["", "1", "False"]),
                 (full.name,), logarithms),
            step(op("aten::nll_loss_forward", F, logarithms.tensor, self._labels), ("logarithms",)),
        )  # fmt: skip

    def backward(self) -> tuple[tuple[Step, ...], str]:
        """From the loss to the gradient of the last block's result."""
        dtype, full = self.x.tensor.dtype, Tensor((self._batch, self.classes), FLOAT)
        losses, scores = Named("d_logarithms", full), Named("d_full", full)
        logits = self._named("d_logits", self.classes, dtype) if self.training.is_mixed else scores
        mean, made = self._named("d_mean", self._channels, dtype), Named("d_x head", self.x.tensor)
        weight = Tensor((self.classes, self._channels), dtype)
        held = "copy of fc.weight" if self.training.is_mixed else ""
        total = step(op("aten::sum", B, logits.tensor, None, None, values=["", "[0]", "True"]), (logits.name,))
        product = step(
            op("aten::mm", B, Tensor((self.classes, self._batch), dtype), mean.tensor), (logits.name, "mean")
        )
        return (
            step(op("aten::fill_", B, Tensor((), FLOAT), None)),
            step(op("aten::nll_loss_backward", B, Tensor((), FLOAT), full, self._labels), ("logarithms",), losses),
            step(op("aten::_log_softmax_backward_data", B, full, full), ("d_logarithms", "logarithms"), scores),
            *([cast(B, scores, logits)] if self.training.is_mixed else []),
            silent(B, "t", "transpose"),
            step(op("aten::mm", B, logits.tensor, weight), takes(logits.name, held), mean),
            *with_gradients(self.training, total, [Named("fc.bias", Tensor((self.classes,), dtype))]),
            silent(B, "t", "transpose"),
            *with_gradients(self.training, product, [Named("fc.weight", weight)]),
            silent(B, "t", "transpose", "view", "expand"),
            step(op("aten::div", B, self.x.tensor, None), ("d_mean",), made),
        ), made.name

    @property
    def _labels(self) -> Tensor:
        return Tensor((self._batch,), "int64")
