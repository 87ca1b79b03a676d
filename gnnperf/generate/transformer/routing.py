"""Steps whose tokens prefer some experts: how much more than the mean the busiest rank of a layer gets.

    popularity of 8 experts, skew 1.2   1  0.44  0.27  0.19  ...     i^-skew (Zipf)
    of a layer, drawn                   |0.27 1|0.11 0.19|...        which expert is how popular, on which rank
    tokens of the experts               |   busiest    |...          binomial; a token has no expert twice

Which experts are popular is drawn anew for each layer and step. All layers of a step have the mean load of its layers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.generate.transformer.plan import TransformerPlan

DRAWS, SEED = 20, 0
SAMPLED_TOKENS = 1 << 14  # whose experts are drawn one by one, for the share of tokens that each expert gets


def drawn_loads(plan: TransformerPlan) -> tuple[float, ...]:
    """[draws] tokens of the busiest rank over the mean of its group, ascending."""
    experts, ranks = plan.experts, plan.parallelism.expert
    assert experts is not None and experts.skew is not None, "only plans with a skew have them"
    rng, layers = np.random.default_rng(SEED), plan.model.layers // experts.every
    tokens = plan.resident_tokens * ranks
    shares = np.broadcast_to(
        chosen_shares(experts.count, experts.top_k, experts.skew, rng), (DRAWS, layers, experts.count)
    )
    counts = rng.binomial(tokens, rng.permuted(shares, axis=-1)).reshape(DRAWS, layers, ranks, -1).sum(-1)
    return tuple(np.sort((counts.max(-1) / counts.mean(-1)).mean(-1)).tolist())


def chosen_shares(count: int, top_k: int, skew: float, rng: np.random.Generator) -> np.ndarray:
    """[count] share of tokens that have an expert among their `top_k`; they add up to `top_k`."""
    popularity = np.arange(1, count + 1) ** -skew
    if top_k == 1:
        return popularity / popularity.sum()
    # the largest of log(popularity) + Gumbel noise are draws without repetition (Kool et al. 2019)
    scores = np.log(popularity) + rng.gumbel(size=(SAMPLED_TOKENS, count))
    chosen = np.argpartition(-scores, top_k - 1, axis=1)[:, :top_k]
    return np.bincount(chosen.ravel(), minlength=count) / SAMPLED_TOKENS


def with_load(plan: TransformerPlan, load: float) -> TransformerPlan:
    """The plan of one drawn step."""
    assert plan.experts is not None, "only plans with experts have a load"
    return replace(plan, experts=replace(plan.experts, imbalance=load, skew=None))
