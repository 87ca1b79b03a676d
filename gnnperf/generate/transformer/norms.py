"""Norms over the hidden width, on the tokens that a rank holds."""

from __future__ import annotations

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Norm
from gnnperf.generate.transformer.items import Item, op
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.products import B, accumulate
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor


def norm(plan: TransformerPlan, phase: Phase) -> Item:
    """The block's norm, forward."""
    s = sizes(plan)
    return _rms(s, phase) if plan.block.norm is Norm.RMS else _layer(s, phase)


def norm_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Gradients of input and weights; the latter are added up."""
    s = sizes(plan)
    return _rms_backward(s) if plan.block.norm is Norm.RMS else _layer_backward(s)


def _layer(s: Sizes, phase: Phase) -> Item:
    return op("aten::native_layer_norm", phase, s.stream, None, s.half(s.hidden), s.half(s.hidden))


def _rms(s: Sizes, phase: Phase) -> Item:
    return op("aten::_fused_rms_norm", phase, s.stream, None, s.half(s.hidden))


def _layer_backward(s: Sizes) -> tuple[Item, ...]:
    x, row, weight = s.stream, Tensor((s.resident,), "float32"), s.half(s.hidden)
    backward = op("aten::native_layer_norm_backward", B, x, x, None, row, row, weight, weight)
    return (backward, *accumulate(s, s.hidden), *accumulate(s, s.hidden))


def _rms_backward(s: Sizes) -> tuple[Item, ...]:
    x, row = s.stream, Tensor((s.resident, 1), "float32")
    backward = op("aten::_fused_rms_norm_backward", B, x, x, None, row, s.half(s.hidden))
    return (backward, *accumulate(s, s.hidden))
