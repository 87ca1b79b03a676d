"""The Lightning module: losses of nodes and steps, optimizer, schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.training.config import OptimConfig
from gnnperf.gnn.training.objective import Answers, Term, build_terms, labeled
from gnnperf.gnn.training.op_class import OpHider, op_class_error
from gnnperf.gnn.training.step_target import StepTarget, step_targets
from gnnperf.gnn.training.step_time import step_error, step_times


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
        if times.workloads:  # segments alone have no step time
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
