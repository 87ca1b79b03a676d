"""FLOPs of a step as publications count them, for model and hardware FLOPs utilization.

Chowdhery et al. 2022 (arXiv 2204.02311, appendix B); docs/concepts/throughput.md has the formulas.
"""

from collections import Counter

from gnnperf.generate.transformer.activations import recomputed
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import mlp_parameters, norm_parameters
from gnnperf.generate.work_of_step import StepWork

FORMULA = (
    "model FLOPs = tokens x (6 x parameters + 12 x layers x hidden x sequence), of experts those of a token; HFU adds "
    "what is computed again"
)
PRODUCT_FLOPS = 2.0  # per parameter and token: multiply and add
TRAINING = 3.0  # forward; backward for inputs and for weights
ATTENTION_FLOPS = 4.0  # per layer, hidden column, token and position: scores and context, multiply and add


def step_work_of(plan: TransformerPlan) -> StepWork:
    """Samples, tokens and FLOPs of one step; of samples of several lengths the mean, without what pads them."""
    lengths = Counter((plan.model.sequence,) if plan.lengths is None else plan.lengths.values)
    tokens = model = again = 0.0
    for length, count in lengths.items():
        share = plan.schedule.global_batch * length * count / lengths.total()
        tokens += share
        model += TRAINING * forward_flops(plan, length) * share
        again += _recomputed_flops(plan, length) * share
    return StepWork(
        samples=float(plan.schedule.global_batch), tokens=tokens, model_flops=model, hardware_flops=model + again,
        dtype=plan.model.dtype, formula=FORMULA,
    )  # fmt: skip


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


def forward_flops(plan: TransformerPlan, length: int) -> float:
    """Per token of samples of one length."""
    return PRODUCT_FLOPS * parameters_per_token(plan) + plan.model.layers * _attention_flops(plan, length)


def _attention_flops(plan: TransformerPlan, length: int) -> float:
    """Per token and layer, forward."""
    return ATTENTION_FLOPS * plan.model.hidden * length


def _recomputed_flops(plan: TransformerPlan, length: int) -> float:
    """Per token."""
    if plan.schedule.recompute is Recompute.NONE:
        return 0.0
    if plan.schedule.recompute is Recompute.SELECTIVE:
        return plan.model.layers * _attention_flops(plan, length)
    again = [layer for layer in range(plan.model.layers) if recomputed(plan, layer)]
    return sum(PRODUCT_FLOPS * layer_parameters_per_token(plan, n) + _attention_flops(plan, length) for n in again)
