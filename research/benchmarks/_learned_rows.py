"""Rows of the comparison: a name and a learner each. A new row is one line.

Rows are the experiments of conf/experiment: `python train.py experiment=NAME data.axis=SPLIT` is the row. Settings of
every learned row were found by hand on the validation runs of the split `size`, in fewer than twenty fits each; rows
called "searched" look for their own with FLAML, on the validation runs of every split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnperf.predict import composed
from gnnperf.predict.composition.entry import EntryConfig, training_part
from research.baselines.judge import Learner
from research.baselines.network import Network
from research.baselines.rows import TRIVIAL, simpler
from research.benchmarks._cached_networks import CachedNetwork
from research.benchmarks._hybrid_row import Hybrid

SIMPLER = ("trees", "trees_hops", "graphsage", "ops_as_text", "trees_searched", "trees_hops_searched")


def experiment(name: str) -> Network:
    """The network of conf/experiment/<name>.yaml."""
    given = composed("train", EntryConfig, f"experiment={name}", "trainer.progress_bar=false")
    return Network(training_part(given))


def learner(name: str) -> Learner:
    """The simpler learner of conf/experiment/<name>.yaml."""
    return simpler(composed("train", EntryConfig, f"experiment={name}").learner)


NETWORKS = Path("outputs/learned/networks")  # what a fit of the row gnn leaves to other rows and looks
GNN = CachedNetwork(experiment("gnn"), NETWORKS)

FIXED: dict[str, Learner] = dict(TRIVIAL)  # one answer, whatever the seed
# an answer per seed
LEARNED: dict[str, Learner] = {
    "gnn": GNN,
    "mlp": experiment("mlp"),  # the ablation "no messages" as well
    **{name.replace("_", "-"): learner(name) for name in SIMPLER},
    "hybrid": Hybrid(GNN),  # the network of the row gnn, as far as it is trusted
}
AFTER_OTHERS = ("hybrid",)  # asks the network that another row leaves
# the network without one of its parts, on ABLATION_SPLITS with ABLATION_SEEDS
ABLATIONS: dict[str, Learner] = {
    "no-reverse": experiment("no_reverse"),
    "no-residual": experiment("no_residual"),
    "no-step-loss": experiment("no_step_loss"),
}
# row -> what its data are given next to the split's (fields of DataConfig), where the target itself is ablated
DATA: dict[str, dict[str, Any]] = {"no-residual": {"residual_target": False}}
ABLATION_SPLITS, ABLATION_SEEDS = ("size", "workload"), (0, 1, 2)

CURVE_ROW, CURVE_SHARES = "gnn", (0.125, 0.25, 0.5)  # of the training runs; the whole is the row itself
