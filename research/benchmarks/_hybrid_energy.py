"""The rival of the state's distance: energy of a head that tells which op a node is, from the same states.

    energy = -log sum exp(logits)      (Liu et al. 2020, "Energy-based Out-of-distribution Detection")

The head is fitted on states of the trained network, in which some ops' names are hidden as training hides them
(training.op_class), so that it costs the network nothing. Fine-tuned, energies of training states are pushed below
those of outliers: nodes of programs whose families training lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnperf.gnn import WORK, TypedGNN
from gnnperf.gnn.data.module import batch_of
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.models.segmented import states_of
from gnnperf.gnn.training.module import OP, OpHider

HIDDEN, DRAWS, STEPS, RATE = 0.3, 3, 300, 0.02
BELOW, ABOVE, BOUND_WEIGHT = -12.0, -6.0, 0.05  # energies of training states, of outliers; weight of the two hinges


@dataclass(frozen=True)
class Energy:
    """Attributes: heads: work type -> linear head; usual: work type -> that 95 % of validation nodes are below."""

    heads: Mapping[str, nn.Linear]
    usual: Mapping[str, float]

    @torch.no_grad()
    def above(self, node_type: str, states: Tensor) -> Tensor:
        """[n, h] -> [n] energy above the usual one."""
        return energy(self.heads[node_type](states)) - self.usual[node_type]


def energy(logits: Tensor) -> Tensor:
    """[n, num_ops] -> [n]."""
    return -torch.logsumexp(logits, dim=1)


def fit_energy(network: TypedGNN, data: PreparedData, outliers: Sequence[Step] = ()) -> Energy:
    """On training steps; with outliers the energies are bounded, too."""
    torch.manual_seed(0)
    states, ops = _hidden_states(network, data)
    val, far = (_states(network, steps) for steps in (data.steps["val"], outliers))
    heads, usual = {}, {}
    for node_type in WORK:
        num_codes = data.vocabulary.num_codes(node_type, "op_name")
        heads[node_type] = _fit(states[node_type], ops[node_type], far[node_type], num_codes)
        with torch.no_grad():
            known = energy(heads[node_type](val[node_type]))
        usual[node_type] = float(torch.quantile(known, 0.95)) if len(known) else 0.0
    return Energy(heads, usual)


def _fit(states: Tensor, ops: Tensor, outliers: Tensor, num_codes: int) -> nn.Linear:
    head = nn.Linear(states.shape[1], num_codes)
    optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
    for _ in range(STEPS if len(states) else 0):
        rows = torch.randint(len(states), (2048,))
        logits = head(states[rows])
        loss = nn.functional.cross_entropy(logits, ops[rows])
        if len(outliers):
            far = energy(head(outliers[torch.randint(len(outliers), (2048,))]))
            bounds = torch.relu(energy(logits) - BELOW).square().mean() + torch.relu(ABOVE - far).square().mean()
            loss = loss + BOUND_WEIGHT * bounds
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head


@torch.no_grad()
def _hidden_states(network: TypedGNN, data: PreparedData) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Work type -> states and op codes of training nodes, as they are and with names hidden."""
    hider = OpHider(data.vocabulary, HIDDEN)
    result: dict[str, tuple[list[Tensor], list[Tensor]]] = {t: ([], []) for t in WORK}
    for step in data.steps["train"]:
        batch = batch_of([step.data])
        seen: list[tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor] | None]] = [
            (network.states(batch), {t: batch[t].codes[:, OP] for t in WORK}, None)
        ]
        for _ in range(DRAWS - 1):
            hidden = hider(batch)
            seen.append((network.states(hidden.batch), hidden.op, hidden.hidden))
        for states, ops, only in seen:
            for t in WORK:
                rows = torch.ones(len(ops[t]), dtype=torch.bool) if only is None else only[t]
                result[t][0].append(states[t][rows])
                result[t][1].append(ops[t][rows])
    return {t: torch.cat(s) for t, (s, _) in result.items()}, {t: torch.cat(o) for t, (_, o) in result.items()}


def _states(network: TypedGNN, steps: Sequence[Step]) -> dict[str, Tensor]:
    each = [states_of(network, step.data) for step in steps]
    return {t: torch.cat([one[t] for one in each]) if each else torch.zeros(0, 1) for t in WORK}
