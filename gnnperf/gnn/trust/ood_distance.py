"""How unlike training a node is to the network: the distance of its state to the nearest states of training nodes.

    distance = |state / |state| - nearest of the kept states|      (nearest neighbors in a layer of the network; Sun
                                                                    et al. 2022, "Out-of-Distribution Detection with
                                                                    Deep Nearest Neighbors")

It is requested of two layers: of what a node is by itself, which holds its name, and of what it is among its neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnperf.core import Positive

KEPT = 1000  # training states per node type
SEEN_KEPT = 0.95  # share of nodes of unseen runs that count as like training


@dataclass(frozen=True)
class OodDistance:
    """What training nodes look like to the network.

    Attributes:
        states: node type -> [num_kept, hidden_channels] of length 1.
        usual: node type -> distance that SEEN_KEPT of the validation nodes stay below.
    """

    states: Mapping[str, Tensor]
    usual: Mapping[str, Positive]

    def unlike(self, node_type: str, states: Tensor) -> Tensor:
        """[n, hidden_channels] -> [n] distance in units of the usual one; infinite if training had no such nodes."""
        retained = self.states[node_type]
        if not len(retained):
            return torch.full((len(states),), torch.inf)
        return distances(retained, states) / self.usual[node_type]


def fit_ood_distance(
    train: Sequence[Mapping[str, Tensor]], val: Sequence[Mapping[str, Tensor]], seed: int = 0
) -> OodDistance:
    """Of graphs' states by node type.

    Args:
        train: of training steps, of which KEPT of each type are drawn.
        val: of validation steps, nodes whose op training has.
        seed: of what is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    states, usual = {}, {}
    for node_type in train[0]:
        every = unit(torch.cat([one[node_type] for one in train]))
        chosen = torch.randperm(len(every), generator=generator)[:KEPT]
        states[node_type] = every[chosen].clone()
        others = torch.cat([one[node_type] for one in val])
        far = distances(states[node_type], others) if len(every) and len(others) else torch.ones(1)
        usual[node_type] = max(float(torch.quantile(far, SEEN_KEPT)), 1e-6)
    return OodDistance(states, usual)


def unit(states: Tensor) -> Tensor:
    """[n, hidden_channels] -> the same, each of length 1."""
    return torch.nn.functional.normalize(states.float(), dim=1)


def distances(retained: Tensor, states: Tensor) -> Tensor:
    """[num_kept, h] of length 1, [n, h] -> [n] distance to the nearest, by blocks."""
    result = [(2.0 - 2.0 * (unit(part) @ retained.T).amax(dim=1)).clamp(min=0.0).sqrt() for part in states.split(8192)]
    return torch.cat(result) if result else states.new_zeros(0)
