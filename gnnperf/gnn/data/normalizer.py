"""Mean, spread and range of each feature by node type, from training steps only.

Outside the training range a feature counts as the nearest end of the range: the base extrapolates, its correction does
not. Collectives over a link or in a group outside the range of their kind keep their collective model
(`known_collective_model`): what a correction there stands for, such as a slow processor, is absent on a link ten times
slower, and what one kind learned of that link does not hold for another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import HeteroData

from gnnperf.core import NodeType
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS

COLLECTIVE = str(NodeType.COLLECTIVE)
RANGED = [
    WORK_NAMES.index(n) for n in ("log_group_size", "log_machines", "log_link_bytes_per_s", "log_link_latency_us")
]
KIND = FIELDS.index("collective")
ROUNDING = 1e-3  # of logs
REACH = 3.0  # scales beyond its earlier range that a feature counts in a later training


@dataclass(frozen=True)
class Normalizer:
    """Feature statistics."""

    mean: Mapping[str, Tensor]  # node type -> [num_features] float32
    # node type -> [num_features] float32; infinite where the feature is constant in training, so that its untrained
    # weight never acts
    scale: Mapping[str, Tensor]
    # low, high: node type -> [num_features] float32, the range in training, raw
    low: Mapping[str, Tensor]
    high: Mapping[str, Tensor]
    # "low", "high" -> [num_kinds, len(RANGED)] float32, their range by kind of collective (its code); infinite and
    # reversed where training had none
    of_kinds: Mapping[str, Tensor]

    def apply(self, data: HeteroData) -> HeteroData:
        """A shallow copy with normalized x, clipped to the training range, and known_collective_model."""
        normalized = data.__copy__()
        for node_type in data.node_types:
            known = data[node_type].x.clamp(self.low[node_type], self.high[node_type])  # [n, num_features]
            normalized[node_type].x = (known - self.mean[node_type]) / self.scale[node_type]
            if node_type == COLLECTIVE:
                low, high = self.of_kinds["low"], self.of_kinds["high"]  # [num_kinds, len(RANGED)]
                kind, ranged = data[node_type].codes[:, KIND], data[node_type].x[:, RANGED]  # [n], [n, len(RANGED)]
                seen = kind.clamp(max=len(low) - 1)  # [n]
                inside = (ranged >= low[seen] - ROUNDING) & (ranged <= high[seen] + ROUNDING)  # [n, len(RANGED)]
                normalized[node_type].known_collective_model = inside.all(1) & (kind < len(low))
        return normalized

    def occurred(self, node_type: str) -> bool:
        """Whether there were nodes of the type: of none, nothing varies and the range is 0."""
        varied = bool(self.scale[node_type].isfinite().any())
        return varied or bool(self.low[node_type].any()) or bool(self.high[node_type].any())

    def constant(self, node_type: str) -> Tensor:
        """[num_features] bool: what did not vary."""
        return self.scale[node_type].isinf()


# Of some graphs: node type -> [5, num_features] float64 (number of nodes, mean, sum of squared deviations, lowest,
# highest), and the ranges by kind of collective.
Statistics = tuple[dict[str, np.ndarray], dict[str, Tensor]]


def statistics_of(graph: HeteroData) -> Statistics:
    """What `fit_normalizer` needs to know of a graph."""
    moments = {}
    for node_type in graph.node_types:
        x = graph[node_type].x.numpy().astype(np.float64)  # [n, num_features]
        mean = x.sum(0) / max(len(x), 1)
        ends = x.min(0, initial=np.inf), x.max(0, initial=-np.inf)
        moments[node_type] = np.stack([np.full(x.shape[1], len(x)), mean, np.square(x - mean).sum(0), *ends])
    return moments, _of_kinds(graph)


def _joined(one: Statistics, other: Statistics) -> Statistics:
    """Of the graphs of both (Chan et al. 1979, updating formulae for computing sample variances)."""
    moments = {}
    for node_type, (count, mean, squares, low, high) in one[0].items():
        more, its_mean, its_squares, its_low, its_high = other[0][node_type]  # [num_features] each
        apart, share = its_mean - mean, more / np.maximum(count + more, 1)
        both = squares + its_squares + apart**2 * count * share
        ends = np.minimum(low, its_low), np.maximum(high, its_high)
        moments[node_type] = np.stack([count + more, mean + apart * share, both, *ends])
    return moments, _of_both_kinds(one[1], other[1])


def fit_normalizer(graphs: Iterable[HeteroData]) -> Normalizer:
    """Over all nodes of a type in these graphs; a type without nodes gets mean 0 and an infinite scale."""
    return normalizer_of(map(statistics_of, graphs))


def normalizer_of(statistics: Iterable[Statistics]) -> Normalizer:
    """As `fit_normalizer`, of graphs with these statistics."""
    moments, of_kinds = reduce(_joined, statistics)
    parts: tuple[dict[str, Tensor], ...] = ({}, {}, {}, {})
    for node_type, (count, mean, squares, low, high) in moments.items():
        sigma = np.sqrt(squares / np.maximum(count, 1))
        known = np.where(count > 0, [low, high], 0.0)  # [2, num_features]
        for part, values in zip(parts, (mean, np.where(sigma > 1e-6, sigma, np.inf), *known), strict=True):
            part[node_type] = torch.from_numpy(values).float()
    mean_of, scale_of, low_of, high_of = parts
    return Normalizer(mean_of, scale_of, low_of, high_of, of_kinds)


def _of_kinds(graph: HeteroData) -> dict[str, Tensor]:
    kind, values = torch.zeros(0, dtype=torch.int64), torch.zeros(0, len(RANGED))  # [n], [n, len(RANGED)]
    if COLLECTIVE in graph.node_types:
        kind, values = graph[COLLECTIVE].codes[:, KIND], graph[COLLECTIVE].x[:, RANGED]
    rows = kind[:, None].expand_as(values)
    none = torch.full((int(kind.max()) + 1 if len(kind) else 1, len(RANGED)), torch.inf)
    low, high = none.scatter_reduce(0, rows, values, "amin"), (-none).scatter_reduce(0, rows, values, "amax")
    return {"low": low, "high": high}


def widened(earlier: Normalizer, later: Normalizer) -> Normalizer:
    """The earlier mean and scale of every feature that varied then, the later ones of the rest; the range of both.

    A feature that varied widens by REACH of its scales at most, because farther away the earlier weights are untrained.
    A feature with another constant now varies between the two. A node type that did not occur then is as it is later.
    """
    both = {t: _of_both(earlier, later, t) for t in later.mean}
    of_kinds = _of_both_kinds(earlier.of_kinds, later.of_kinds)
    mean, scale, lowest, highest = ({t: result[place] for t, result in both.items()} for place in range(4))
    return Normalizer(mean, scale, lowest, highest, of_kinds)


def _of_both_kinds(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The range of both by kind of collective."""
    more = max(len(of_kinds["low"]) for of_kinds in (one, other))
    low, high = ([pad(of_kinds[end], (0, 0, 0, more - len(of_kinds[end])), value=fill) for of_kinds in (one, other)]
                 for end, fill in (("low", torch.inf), ("high", -torch.inf)))  # fmt: skip
    return {"low": torch.minimum(*low), "high": torch.maximum(*high)}


def _of_both(earlier: Normalizer, later: Normalizer, node_type: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, scale, low and high of one type, [num_features] each."""
    then, now = ((n.mean[node_type], n.scale[node_type], n.low[node_type], n.high[node_type]) for n in (earlier, later))
    if not (earlier.occurred(node_type) and later.occurred(node_type)):
        return then if earlier.occurred(node_type) else now
    low, high = torch.minimum(then[2], now[2]), torch.maximum(then[3], now[3])
    moved = earlier.constant(node_type) & later.constant(node_type) & (high > low)  # [num_features]
    mean, scale = torch.where(moved, (low + high) / 2, now[0]), torch.where(moved, (high - low) / 2, now[1])
    varied = ~earlier.constant(node_type)  # [num_features]
    farthest = REACH * torch.where(varied, then[1], torch.zeros_like(then[1]))  # [num_features]
    return (
        torch.where(varied, then[0], mean),
        torch.where(varied, then[1], scale),
        torch.where(varied, torch.maximum(low, then[2] - farthest), low),
        torch.where(varied, torch.minimum(high, then[3] + farthest), high),
    )
