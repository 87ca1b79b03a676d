"""What the programs of all ranks have in common, made once: the replicated part, and who holds how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.generate.recommendation import network
from gnnperf.generate.recommendation.items import Item
from gnnperf.generate.recommendation.messages import widths
from gnnperf.generate.recommendation.parts import Part, Travel, parts_of
from gnnperf.generate.recommendation.plan import RecommendationPlan


@dataclass(frozen=True)
class Shared:
    """What programs of all ranks share.

    Attributes:
        plan: asked about.
        parts: of tables.
        elements, indices, tables: [ranks] see `messages.widths`.
        bottom, rest, bottom_backward: items of the replicated part; `rest` is all between the two.
        update: of replicated parameters.
    """

    plan: RecommendationPlan
    parts: tuple[Part, ...]
    elements: np.ndarray
    indices: np.ndarray
    tables: np.ndarray
    bottom: tuple[Item, ...]
    rest: tuple[Item, ...]
    bottom_backward: tuple[Item, ...]
    update: tuple[Item, ...]


def shared_by_all(plan: RecommendationPlan) -> Shared:
    """The replicated part, and what travels."""
    parts = parts_of(plan)
    below, above = network.bottom_widths(plan.model), network.top_widths(plan.model)
    loss, *loss_backward = network.loss(plan)
    replicated = [(p.rows, p.dim) for p in parts if p.travel is Travel.STAYS and plan.ranks > 1]
    rest = (
        *network.interaction_forward(plan),
        *network.perceptron_forward(plan, above, "aten::sigmoid"),
        loss,
        *loss_backward,
        *network.perceptron_backward(plan, above, "top"),
        *network.interaction_backward(plan),
    )
    return Shared(plan, parts, *widths(parts, plan.ranks), tuple(network.perceptron_forward(plan, below, "aten::relu")),
                  rest, tuple(network.perceptron_backward(plan, below, "bottom")),
                  (network.update(plan.model, replicated),))  # fmt: skip
