"""The Lightning module: loss over labeled nodes, optimizer, schedule."""

from __future__ import annotations

import math

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch_geometric.data import HeteroData

from gnnperf.models.gnn import WORK, TypedGNN
from gnnperf.training.config import OptimConfig
from gnnperf.training.loss import NodeLoss, weighted_mean


class LatencyModule(lightning.LightningModule):
    """Trains a TypedGNN on node latencies.

    Args:
        model: the network.
        loss: error per node.
        config: optimizer settings.
        seed: of what is random inside a step (dropout).
    """

    def __init__(self, model: TypedGNN, loss: NodeLoss, config: OptimConfig, seed: int) -> None:
        super().__init__()
        self.model, self.loss, self.config, self.seed = model, loss, config, seed

    def on_train_batch_start(self, batch: HeteroData, batch_idx: int) -> None:
        """Dropout depends on seed and step only, so that a resumed run repeats an uninterrupted one."""
        torch.manual_seed(self.seed * 1_000_003 + self.global_step)

    def training_step(self, batch: HeteroData, step: int) -> Tensor:
        """Weighted loss of one batch."""
        value = self._loss(batch)
        size = {"batch_size": batch.num_graphs}
        self.log("train_loss", value, on_epoch=True, on_step=False, prog_bar=True, sync_dist=True, **size)
        return value

    def validation_step(self, batch: HeteroData, step: int) -> None:
        """Log the loss and the mean |log error| of one batch."""
        residual, _, target, _ = labeled(self.model, batch)
        size = {"batch_size": batch.num_graphs}
        self.log("val_loss", self._loss(batch), prog_bar=True, **size)
        self.log("val_log_error", (residual - target).abs().sum() / max(len(target), 1), **size)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW with linear warm-up and cosine decay over all steps."""
        config = self.config
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        total = max(int(self.trainer.estimated_stepping_batches), 1)
        schedule = LambdaLR(optimizer, lambda step: learning_rate_share(step, total, config.warmup_share))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _loss(self, batch: HeteroData) -> Tensor:
        residual, log_spread, target, time_share = labeled(self.model, batch)
        errors = self.loss(residual, log_spread, target)  # [n]
        assert errors.shape == target.shape
        return weighted_mean(errors, time_share, self.config.share_weight)


def labeled(model: TypedGNN, batch: HeteroData) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Residual, log spread, target and time share of the labeled nodes of all work types: four of shape [n]."""
    answers = model(batch)
    target = torch.cat([batch[t].target for t in WORK])  # [num work nodes]
    use = torch.isfinite(target)  # [num work nodes]
    residual = torch.cat([answers[t].residual for t in WORK])[use]  # [n]
    log_spread = torch.cat([answers[t].log_spread for t in WORK])[use]  # [n]
    return residual, log_spread, target[use], torch.cat([batch[t].time_share for t in WORK])[use]


def learning_rate_share(step: int, total: int, warmup_share: float) -> float:
    """Share of the peak learning rate at an optimizer step: linear from 0, then half a cosine to 0."""
    warmup = max(round(warmup_share * total), 1)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1)))
