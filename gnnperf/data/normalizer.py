"""Mean and spread of each feature by node type, from training steps only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

MAX_SIGMAS = 10.0  # beyond the training range a linear encoder must not explode


@dataclass(frozen=True)
class Normalizer:
    """Feature statistics.

    Attributes:
        mean: node type -> [num_features] float32.
        scale: node type -> [num_features] float32; infinite where the feature is constant in training, so that it
            stays 0 later: nothing could be learned from it, and an untrained weight would answer with noise.
    """

    mean: Mapping[str, Tensor]
    scale: Mapping[str, Tensor]

    def apply(self, data: HeteroData) -> HeteroData:
        """A shallow copy with normalized x, clipped at MAX_SIGMAS; `data` stays as it is."""
        normalized = data.__copy__()
        for node_type in data.node_types:
            x = (data[node_type].x - self.mean[node_type]) / self.scale[node_type]  # [n, num_features]
            normalized[node_type].x = x.clamp(-MAX_SIGMAS, MAX_SIGMAS)
        return normalized


def fit_normalizer(graphs: Sequence[HeteroData]) -> Normalizer:
    """Statistics over all nodes of a type in these graphs; a type without nodes gets mean 0 and an infinite scale."""
    mean, scale = {}, {}
    for node_type in graphs[0].node_types:
        x = torch.cat([g[node_type].x for g in graphs]).double()  # [all nodes of the type, num_features]
        count = max(len(x), 1)
        mu = x.sum(0) / count
        sigma = ((x - mu).square().sum(0) / count).sqrt()
        mean[node_type] = mu.float()
        scale[node_type] = torch.where(sigma > 1e-6, sigma, torch.full_like(sigma, float("inf"))).float()
    return Normalizer(mean, scale)
