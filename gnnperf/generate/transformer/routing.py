"""Steps whose tokens prefer some experts: how much more than the mean the busiest rank of a layer gets.

    popularity of 8 experts, skew 1.2   1  0.44  0.27  0.19  ...     i^-skew (Zipf)
    of a layer, drawn                   |0.27 1|0.11 0.19|...        which expert is how popular, on which rank
    tokens of the experts               |   busiest    |...          binomial; a token has no expert twice

Which experts are popular is drawn anew for each layer and step. All layers of a step have the mean load of its layers.
"""

from dataclasses import replace

import numpy as np

from gnnperf.generate.transformer.plan import TransformerPlan

DRAWS, SEED = 20, 0
HALVINGS = 100  # of the bracket of a root, to the last bit


def has_skew(plan: TransformerPlan) -> bool:
    """Whether steps of the plan differ in their routing."""
    return plan.experts is not None and plan.experts.skew is not None


def drawn_loads(plan: TransformerPlan) -> tuple[float, ...]:
    """[draws] tokens of the busiest rank over the mean of its group, ascending; [1] of one rank, which has all."""
    experts, ranks = plan.experts, plan.parallelism.expert
    assert experts is not None and experts.skew is not None, "only plans with a skew have them"
    if ranks == 1:
        return (1.0,)
    rng, layers = np.random.default_rng(SEED), max(plan.model.layers // experts.every, 1)
    shares = np.broadcast_to(chosen_shares(experts.count, experts.top_k, experts.skew), (DRAWS, layers, experts.count))
    counts = rng.binomial(plan.resident_tokens * ranks, rng.permuted(shares, axis=-1))
    counts = counts.reshape(DRAWS, layers, ranks, -1).sum(-1)  # of a rank's experts
    mean = counts.mean(-1)  # [draws, layers]; without a token all ranks are alike
    loads = np.divide(counts.max(-1), mean, out=np.ones_like(mean), where=mean > 0)
    return tuple(np.sort(loads.mean(-1)).tolist())


def chosen_shares(count: int, top_k: int, skew: float) -> np.ndarray:
    """[count] share of tokens that have an expert among their `top_k`; they add up to `top_k`.

    Of draws without repetition, 1 - exp(-popularity x t) to the first order (Rosen 1972, successive sampling), where t
    gives that sum.
    """
    popularity = np.arange(1, count + 1) ** -skew
    popularity /= popularity.sum()
    if top_k in (1, count):
        return popularity if top_k == 1 else np.ones(count)
    low, high = 0.0, 1.0
    while -np.expm1(-popularity * high).sum() < top_k:
        high *= 2.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if -np.expm1(-popularity * middle).sum() < top_k else (low, middle)
    return -np.expm1(-popularity * high)


def with_load(plan: TransformerPlan, load: float) -> TransformerPlan:
    """The plan of one drawn step."""
    assert plan.experts is not None, "only plans with experts have a load"
    return replace(plan, experts=replace(plan.experts, imbalance=load, skew=None))
