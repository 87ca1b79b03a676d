"""What the programs of all ranks have in common, made once: the replicated part, and who holds how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.generate.recommendation import network
from gnnperf.generate.recommendation.items import Item
from gnnperf.generate.recommendation.parts import Part, Travel, parts_of
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, RecommendationPlan

# What ranks tell each other about tables: indices to the holders, vectors back, gradients of vectors again.
#
# An uneven exchange is as long as the even one that keeps its busiest rank as busy (as gnnperf.graph.matching has it
# for recorded ones): of a rank that holds width w of a total W, each of n ranks with b samples,
#
#     even message = max(n b w, b (W - w) n / (n - 1))          what it sends, what it receives; its own part stays
#
# the larger of both, times the bytes of an element.

INDEX_BYTES = 8  # int64
LENGTH_BYTES = 4  # int32, one per sample and table (torchrec's KeyedJaggedTensor)


def even_bytes(width: np.ndarray, samples: int, item_bytes: float) -> np.ndarray:
    """Even message [ranks] bytes of each rank; `width` [ranks] elements per sample that a rank holds."""
    ranks = len(width)
    if ranks == 1:
        return np.zeros(1)
    sent, received = ranks * width, (width.sum() - width) * ranks / (ranks - 1)
    return np.maximum(sent, received) * samples * item_bytes


def widths(parts: tuple[Part, ...], ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per sample and rank: vector elements that it sends, indices that it receives, tables that it looks up."""
    elements, indices, tables = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    for part in parts:
        held = list(part.ranks)
        if part.travel is Travel.POOLED:
            elements[held] += part.dim
        if part.travel is not Travel.STAYS:
            indices[held] += part.indices
            tables[held] += 1
    return elements, indices, tables


def summed_width(parts: tuple[Part, ...]) -> int:
    """Columns of tables whose partial sums are reduced on the way."""
    return sum(part.dim for part in parts if part.travel is Travel.SUMMED)


def vector_bytes(parts: tuple[Part, ...], ranks: int, samples: int) -> np.ndarray:
    """Even message [ranks] bytes of the vectors' all-to-all, and of their gradients'."""
    return even_bytes(widths(parts, ranks)[0], samples, FLOAT_BYTES)


@dataclass(frozen=True)
class Shared:
    """What programs of all ranks share.

    Attributes:
        plan: requested.
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
