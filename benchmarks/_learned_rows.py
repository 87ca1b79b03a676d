"""Rows of the comparison: a name and a learner each. A new row is one line.

Networks are the experiments of conf/experiment: `python train.py experiment=NAME data.axis=SPLIT` is the row. Settings
of every learned row were found by hand on the validation runs of the split `size`, in fewer than twenty fits each;
rows called "searched" look for their own with FLAML, on the validation runs of every split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks._hybrid_row import Hybrid
from benchmarks._kept_networks import KeptNetwork
from gnnperf.baselines.answer import Learner
from gnnperf.baselines.hops import trees_with_hops
from gnnperf.baselines.network import Network
from gnnperf.baselines.pooled import PooledSage
from gnnperf.baselines.sequence import OpsAsText
from gnnperf.baselines.trees import Trees
from gnnperf.baselines.trivial import Analytic, Base, NearestNodes, OpConstant
from gnnperf.baselines.tuning import Tuned
from gnnperf.baselines.whole_steps import MedianStep, NearestStep, RidgeStep
from gnnperf.config import composed
from gnnperf.training.config import TrainConfig


def experiment(name: str) -> Network:
    """The network of conf/experiment/<name>.yaml."""
    return Network(composed("train", TrainConfig, f"experiment={name}", "trainer.progress_bar=false"))


NETWORKS = Path("outputs/learned/networks")  # what a fit of the row gnn leaves to other rows and looks
GNN = KeptNetwork(experiment("gnn"), NETWORKS)

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
    "gnn": GNN,
    "mlp": experiment("mlp"),  # the ablation "no messages" as well
    "trees": Tuned(Trees(), trials=1),
    "trees-hops": Tuned(trees_with_hops(), trials=1),
    "graphsage": Tuned(PooledSage(), trials=1),
    "ops-as-text": Tuned(OpsAsText(), trials=1),
    "trees-searched": Tuned(Trees()),
    "trees-hops-searched": Tuned(trees_with_hops()),
    "hybrid": Hybrid(GNN),  # the network of the row gnn, as far as it is trusted
}
AFTER_OTHERS = ("hybrid",)  # asks the network that another row leaves
# the network without one of its parts, on ABLATION_SPLITS with ABLATION_SEEDS
ABLATIONS: dict[str, Learner] = {
    "no-reverse": experiment("no_reverse"),
    "no-hardware-nodes": experiment("no_hardware_nodes"),
    "no-residual": experiment("no_residual"),
    "no-step-loss": experiment("no_step_loss"),
}
# row -> what its data are told beside the split's (fields of DataConfig), where the target itself is ablated
DATA: dict[str, dict[str, Any]] = {"no-residual": {"residual_target": False}}
ABLATION_SPLITS, ABLATION_SEEDS = ("size", "workload"), (0, 1, 2)

CURVE_ROW, CURVE_SHARES = "gnn", (0.125, 0.25, 0.5)  # of the training runs; the whole is the row itself
