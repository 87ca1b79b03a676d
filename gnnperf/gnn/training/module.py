"""The Lightning module: losses of nodes and steps, optimizer, schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN, Vocabulary
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.training.config import OptimConfig
from gnnperf.gnn.training.objective import Answers, Term, build_terms, labeled
from gnnperf.gnn.training.step_time import StepTarget, step_error, step_targets, step_times

# The auxiliary task: which op is a node, where its name is hidden?
#
# A node's own name would tell, and so would its neighbors': the host time before an op carries its name too. So words
# are hidden, not nodes: in each graph of a batch some op names are drawn, and every node that has one of them loses
# what
# says so (the words of its op and family, and the numbers made of the op's text). What remains are sizes, prices and
# neighbors, as for an op that training has never seen.

OP = FIELDS.index("op_name")
TELLING = (OP, FIELDS.index("family"))
TEXT = [i for i, name in enumerate(WORK_NAMES) if name.startswith("text_")]


@dataclass(frozen=True)
class HiddenOps:
    """A batch without the names of some ops.

    Attributes:
        batch: the graphs to answer for.
        hidden: work type -> [n] bool, nodes that lost their name.
        op: work type -> [n] int64, the names that were there.
    """

    batch: HeteroData
    hidden: dict[str, Tensor]
    op: dict[str, Tensor]


class OpHider:
    """Draws op names to hide.

    Args:
        vocabulary: of the training runs.
        share: of the op names of each graph.
    """

    def __init__(self, vocabulary: Vocabulary, share: float) -> None:
        self.share = share
        names = sorted({word for t in WORK for word in vocabulary.words[t]["op_name"]})
        place = {word: i for i, word in enumerate(names, start=1)}  # over all types; 0: unknown
        self.num_names = len(names) + 1
        self.name = {t: torch.tensor([0, *(place[w] for w in vocabulary.words[t]["op_name"])]) for t in WORK}

    def __call__(self, batch: HeteroData) -> HiddenOps:
        """A shallow copy in which names are hidden; unknown ops have none to hide."""
        drawn = torch.rand(batch.num_graphs, self.num_names) < self.share  # [num_graphs, num_names]
        drawn[:, 0] = False
        left, hidden = batch.__copy__(), {}
        for node_type in WORK:
            store = batch[node_type]
            names = self.name[node_type][store.codes[:, OP].cpu()]  # [n]
            hidden[node_type] = drawn[store.batch.cpu(), names].to(store.x.device)  # [n]
            left[node_type].codes, left[node_type].x = _without_name(store.codes, store.x, hidden[node_type])
        return HiddenOps(left, hidden, {t: batch[t].codes[:, OP] for t in WORK})


def _without_name(codes: Tensor, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """[n, num_fields], [n, num_features], [n] bool -> codes and features; 0 is the mean of a normalized feature."""
    codes, x = codes.clone(), x.clone()
    codes[:, TELLING] = codes[:, TELLING].masked_fill(hidden[:, None], UNKNOWN)
    x[:, TEXT] = x[:, TEXT].masked_fill(hidden[:, None], 0.0)
    return codes, x


def op_class_error(logits: Mapping[str, Tensor], ops: HiddenOps) -> Tensor:
    """Mean cross entropy over the nodes whose name is hidden; 0 without any.

    Args:
        logits: work type -> [n, num_codes] of TypedGNN.op_logits.
        ops: what was hidden.
    """
    errors = [
        torch.nn.functional.cross_entropy(logits[t][ops.hidden[t]], ops.op[t][ops.hidden[t]], reduction="sum")
        for t in WORK
    ]
    count = sum(int(hidden.sum()) for hidden in ops.hidden.values())
    return torch.stack(errors).sum() / max(count, 1)


class LatencyModule(lightning.LightningModule):
    """Trains a TypedGNN on node latencies and step times.

    Args:
        model: the network.
        terms: of the loss (objective.build_terms).
        targets: of the steps that batches number.
        config: optimizer settings.
        seed: of what is random inside a step (dropout).
    """

    def __init__(
        self, model: TypedGNN, terms: Sequence[Term], targets: Sequence[StepTarget], config: OptimConfig, seed: int
    ) -> None:
        super().__init__()
        self.model, self.terms, self.targets, self.config, self.seed = model, terms, targets, config, seed

    def on_train_batch_start(self, batch: HeteroData, batch_idx: int) -> None:
        """Dropout depends on seed and step only, so that a resumed run repeats an uninterrupted one."""
        torch.manual_seed(self.seed * 1_000_003 + self.global_step)

    def training_step(self, batch: HeteroData, step: int) -> Tensor:
        """Weighted loss of one batch."""
        value = self._training_loss(batch)
        size = {"batch_size": batch.num_graphs}
        self.log("train_loss", value, on_epoch=True, on_step=False, prog_bar=True, sync_dist=True, **size)
        return value

    def validation_step(self, batch: HeteroData, step: int) -> None:
        """Log the loss and the mean |log error| of the nodes and of the steps of one batch."""
        answers = self.model(batch)
        nodes, times = labeled(batch, answers), step_times(batch, answers, self.targets)
        size = {"batch_size": batch.num_graphs}
        self.log("val_loss", self._loss(batch, answers), prog_bar=True, **size)
        self.log("val_log_error", (nodes.residual - nodes.target).abs().sum() / max(len(nodes.target), 1), **size)
        if times.workloads:  # segments only have no step time
            self.log("val_step_log_error", step_error(times), batch_size=len(times.workloads))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW with linear warm-up and cosine decay over all steps."""
        config = self.config
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        total = max(int(self.trainer.estimated_stepping_batches), 1)
        schedule = LambdaLR(optimizer, lambda step: learning_rate_share(step, total, config.warmup_share))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _training_loss(self, batch: HeteroData) -> Tensor:
        return self._loss(batch, self.model(batch))

    def _loss(self, batch: HeteroData, answers: Answers) -> Tensor:
        return torch.stack([term(batch, answers) for term in self.terms]).sum()


class OpClassModule(LatencyModule):
    """Learns also which op a node is where its name is hidden.

    Args:
        hider: draws the names to hide.
        others: as of LatencyModule.
    """

    def __init__(self, hider: OpHider, *others: Any) -> None:
        super().__init__(*others)
        self.hider = hider

    def _training_loss(self, batch: HeteroData) -> Tensor:
        ops = self.hider(batch)
        states = self.model.states(ops.batch)
        classes = op_class_error(self.model.op_logits(states), ops)
        self.log("train_op_class_error", classes, batch_size=batch.num_graphs, on_epoch=True, on_step=False)
        return self._loss(batch, self.model.answers(states)) + self.config.op_class_weight * classes


def build_module(model: TypedGNN, config: OptimConfig, data: PreparedData, seed: int) -> LatencyModule:
    """The module that the configuration asks for; batches number the steps to train on, then those to validate on."""
    targets = step_targets([*data.steps["train"], *data.steps["val"]])
    arguments = (model, build_terms(config, targets), targets, config, seed)
    if config.op_class_weight > 0:
        return OpClassModule(OpHider(data.vocabulary, config.op_class_share), *arguments)
    model.op_heads.requires_grad_(False)  # without a loss; processes that train together would wait for their gradients
    return LatencyModule(*arguments)


def learning_rate_share(step: int, total: int, warmup_share: float) -> float:
    """Share of the peak learning rate at an optimizer step: linear from 0, then half a cosine to 0."""
    warmup = max(round(warmup_share * total), 1)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1)))
