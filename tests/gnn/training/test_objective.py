"""Means next to what is usual: the deviance that is least at the mean, on labels with one stall among them."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
import torch
from synthetic import prepared
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.module import batch_of
from gnnperf.gnn.models.gnn import WORK, NodeAnswer
from gnnperf.gnn.training.config import OptimConfig
from gnnperf.gnn.training.objective import Answers, HuberLoss, NodeTerm, ScheduledTerm, StepTerm, build_terms


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> HeteroData:
    return batch_of([prepared(Path(tmp_path_factory.mktemp("cache"))).steps["train"][0].data])


def answers(batch: HeteroData, scheduled_residual: float) -> Answers:
    """Every node usually takes its base, and exp(scheduled_residual) times that in a schedule."""
    zero = {t: torch.zeros(len(batch[t].x)) for t in WORK}
    return {t: NodeAnswer(z, z, z + scheduled_residual) for t, z in zero.items()}


def labeled(batch: HeteroData, node_type: str, factors: list[float]) -> HeteroData:
    """The batch with labels on nodes of one type only: a multiple of their base each."""
    changed = batch.clone()
    for other in WORK:
        changed[other].target = torch.full_like(changed[other].target, torch.nan)
    for name in ("target", "steady_target"):
        changed[node_type][name][: len(factors)] = torch.tensor(factors).log()
    return changed


def test_what_is_scheduled_is_held_to_the_steady_label(batch: HeteroData) -> None:
    """Huber's distance of log 2, over its delta of 0.1; the second node has its usual label only."""
    stalled = labeled(batch, "host", [1.0, 1.0])
    stalled["host"].steady_target[:2] = torch.tensor([log(2), float("nan")])
    term = ScheduledTerm(HuberLoss(0.1), weight=0.5, share_weight=0.0)
    far = log(2) - 0.05  # of a linear distance
    assert float(term(stalled, answers(stalled, 0.0))) == pytest.approx(0.5 * (far + 0.0) / 2, rel=1e-5)
    assert float(term(stalled, answers(stalled, log(2)))) == pytest.approx(0.5 * (0.0 + far) / 2, rel=1e-5)


def test_what_is_usual_is_not_moved_by_what_is_scheduled(batch: HeteroData) -> None:
    stalled = labeled(batch, "host", [1.0, 5.0])
    usual = {t: torch.zeros(len(batch[t].x), requires_grad=True) for t in WORK}
    scheduled = {t: torch.zeros(len(batch[t].x), requires_grad=True) for t in WORK}
    given = {t: NodeAnswer(usual[t], usual[t], scheduled[t]) for t in WORK}
    ScheduledTerm(HuberLoss(0.1), 1.0, 0.0)(stalled, given).backward()
    assert all(u.grad is None for u in usual.values())
    assert scheduled["host"].grad is not None


def test_a_weight_of_nothing_leaves_its_term_out() -> None:
    configs = OptimConfig(), OptimConfig(scheduled_weight=0.0), OptimConfig(scheduled_weight=0.0, step_weight=0.0)
    kinds = [[type(term) for term in build_terms(config, ())] for config in configs]
    assert kinds == [[NodeTerm, ScheduledTerm, StepTerm], [NodeTerm, StepTerm], [NodeTerm]]
