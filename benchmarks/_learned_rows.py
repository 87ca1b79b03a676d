"""Rows of the comparison: a name and a learner each. A new row is one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnperf.baselines.answer import Learner
from gnnperf.baselines.network import Network
from gnnperf.baselines.trivial import Analytic, Base, NearestNodes, OpConstant
from gnnperf.baselines.whole_steps import MedianStep, NearestStep, RidgeStep
from gnnperf.models.config import ModelConfig
from gnnperf.training.config import TrainConfig, TrainerConfig

GNN = TrainConfig(trainer=TrainerConfig(progress_bar=False))
MLP = replace(GNN, model=ModelConfig(num_layers=0))

# one answer, whatever the seed
FIXED: dict[str, Learner] = {
    "analytic": Analytic(),
    "base": Base(),
    "op-constant": OpConstant(),
    "nearest-run": NearestNodes(),
    "median-step": MedianStep(),
    "nearest-step": NearestStep(),
    "ridge-step": RidgeStep(),
}
# an answer per seed
LEARNED: dict[str, Learner] = {
    "gnn": Network(GNN),
    "mlp": Network(MLP),  # the ablation "no messages" as well
}
# the network without one of its parts, on ABLATION_SPLITS with ABLATION_SEEDS
ABLATIONS: dict[str, Learner] = {}
# row -> what its data are told beside the split's (fields of DataConfig), where the target itself is ablated
DATA: dict[str, dict[str, Any]] = {}
ABLATION_SPLITS, ABLATION_SEEDS = ("size", "workload"), (0, 1, 2)

CURVE_ROW, CURVE_SHARES = "gnn", (0.125, 0.25, 0.5)  # of the training runs; the whole is the row itself
