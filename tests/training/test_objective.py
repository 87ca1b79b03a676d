"""Means beside what is usual: the deviance that is least at the mean, on labels with one stall among them."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import pytest
import torch
from synthetic import prepared
from torch_geometric.data import HeteroData

from gnnperf.data.module import batch_of
from gnnperf.models.gnn import WORK, NodeAnswer
from gnnperf.training.config import OptimConfig
from gnnperf.training.objective import Answers, MeanTerm, NodeTerm, StepTerm, build_terms


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> HeteroData:
    return batch_of([prepared(Path(tmp_path_factory.mktemp("cache"))).steps["train"][0].data])


def answers(batch: HeteroData, mean_residual: float) -> Answers:
    """Every node usually takes its base, and exp(mean_residual) times that on average."""
    zero = {t: torch.zeros(len(batch[t].x)) for t in WORK}
    return {t: NodeAnswer(z, z, z + mean_residual) for t, z in zero.items()}


def labeled(batch: HeteroData, node_type: str, factors: list[float]) -> HeteroData:
    """The batch with labels on nodes of one type only: a multiple of their base each."""
    changed = batch.clone()
    for other in WORK:
        changed[other].target = torch.full_like(changed[other].target, torch.nan)
    changed[node_type].target[: len(factors)] = torch.tensor(factors).log()
    return changed


def test_the_least_deviance_is_at_the_mean_not_at_the_median(batch: HeteroData) -> None:
    stalled = labeled(batch, "host", [1.0, 1.0, 1.0, 5.0])  # usually 1, on average 2
    term = MeanTerm(weight=1.0, share_weight=0.0)
    at = {factor: float(term(stalled, answers(stalled, log(factor)))) for factor in (1.0, 1.9, 2.0, 2.1)}
    assert min(at, key=lambda factor: at[factor]) == 2.0
    assert at[1.0] == pytest.approx((exp(log(5)) - 1 - log(5)) / 4, rel=1e-5)


def test_a_stall_beyond_all_measure_counts_as_twenty_times(batch: HeteroData) -> None:
    term = MeanTerm(weight=1.0, share_weight=0.0)
    some, more = (labeled(batch, "host", [factor]) for factor in (1e3, 1e6))
    assert float(term(some, answers(some, 0.0))) == float(term(more, answers(more, 0.0)))


def test_what_is_usual_is_not_moved_by_means(batch: HeteroData) -> None:
    stalled = labeled(batch, "host", [1.0, 5.0])
    usual = {t: torch.zeros(len(batch[t].x), requires_grad=True) for t in WORK}
    mean = {t: torch.zeros(len(batch[t].x), requires_grad=True) for t in WORK}
    MeanTerm(1.0, 0.0)(stalled, {t: NodeAnswer(usual[t], usual[t], mean[t]) for t in WORK}).backward()
    assert all(u.grad is None for u in usual.values())
    assert mean["host"].grad is not None


def test_a_weight_of_nothing_leaves_its_term_out() -> None:
    configs = OptimConfig(), OptimConfig(mean_weight=0.0), OptimConfig(mean_weight=0.0, step_weight=0.0)
    kinds = [[type(term) for term in build_terms(config, ())] for config in configs]
    assert kinds == [[NodeTerm, MeanTerm, StepTerm], [NodeTerm, StepTerm], [NodeTerm]]
