"""FLOPs of a step as publications count them, for model and hardware FLOPs utilization.

    model FLOPs per token    6 x parameters + 12 x layers x hidden x sequence
    hardware FLOPs           those, and the forward pass of what is computed again:
                             2 x parameters of the layer + 4 x hidden x sequence per token and recomputed layer,
                             4 x hidden x sequence per token and layer with selective recomputation

Chowdhery et al. 2022 (arXiv 2204.02311, appendix B). The causal mask takes nothing off. Parameters are those that a
token is multiplied with: without embeddings that are only looked up, and of experts the top_k that a token goes to.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import mlp_parameters, norm_parameters

FORMULA = (
    "model FLOPs = tokens x (6 x parameters + 12 x layers x hidden x sequence), of experts those of a token; HFU adds "
    "what is computed again"
)
PRODUCT_FLOPS = 2.0  # per parameter and token: multiply and add
TRAINING = 3.0  # forward; backward for inputs and for weights
ATTENTION_FLOPS = 4.0  # per layer, hidden column, token and position: scores and context, multiply and add


@dataclass(frozen=True)
class StepWork:
    """Of one step, over all ranks. None: unknown.

    Attributes:
        samples: sequences, images, or rows of a recommendation model.
        tokens: of all samples.
        model_flops: that the forward and the backward pass need, without recomputation.
        hardware_flops: those, and what is computed again.
        dtype: of the matrix products.
        formula: how the FLOPs are counted, in words; "" they are unknown.
    """

    samples: float | None = None
    tokens: float | None = None
    model_flops: float | None = None
    hardware_flops: float | None = None
    dtype: str | None = None
    formula: str = ""


def step_work_of(plan: TransformerPlan) -> StepWork:
    """Samples, tokens and FLOPs of one step."""
    tokens = float(plan.schedule.global_batch * plan.model.sequence)
    model = TRAINING * _forward_flops(plan) * tokens
    return StepWork(
        samples=float(plan.schedule.global_batch),
        tokens=tokens,
        model_flops=model,
        hardware_flops=model + _recomputed_flops(plan) * tokens,
        dtype=plan.model.dtype,
        formula=FORMULA,
    )


def parameters_per_token(plan: TransformerPlan) -> int:
    """Parameters of the model that one token is multiplied with; the vocabulary is not padded."""
    layers = sum(layer_parameters_per_token(plan, layer) for layer in range(plan.model.layers))
    return layers + norm_parameters(plan) + plan.model.vocabulary * plan.model.hidden


def layer_parameters_per_token(plan: TransformerPlan, layer: int) -> int:
    """Of one layer: attention, norms, and its MLP or router and experts."""
    model, block, experts = plan.model, plan.block, plan.experts
    keys = plan.key_value_heads * model.hidden // model.heads
    columns = model.hidden + 2 * keys
    attention = model.hidden * columns + model.hidden**2 + (columns + model.hidden if block.bias else 0)
    shared = attention + 2 * norm_parameters(plan)
    if experts is None or not plan.has_experts(layer):
        return shared + mlp_parameters(plan, plan.mlp_width, bias=block.bias)
    expert = mlp_parameters(plan, experts.width or plan.mlp_width, bias=False)
    return shared + model.hidden * experts.count + experts.top_k * expert


def _forward_flops(plan: TransformerPlan) -> float:
    """Per token."""
    return PRODUCT_FLOPS * parameters_per_token(plan) + plan.model.layers * _attention_flops(plan)


def _attention_flops(plan: TransformerPlan) -> float:
    """Per token and layer, forward."""
    return ATTENTION_FLOPS * plan.model.hidden * plan.model.sequence


def _recomputed_flops(plan: TransformerPlan) -> float:
    """Per token."""
    if plan.schedule.recompute is Recompute.NONE:
        return 0.0
    if plan.schedule.recompute is Recompute.SELECTIVE:
        return plan.model.layers * _attention_flops(plan)
    limit, per = plan.schedule.recomputed_layers, plan.layers_per_chunk
    again = [layer for layer in range(plan.model.layers) if limit is None or layer % per < limit]
    return sum(PRODUCT_FLOPS * layer_parameters_per_token(plan, n) + _attention_flops(plan) for n in again)
