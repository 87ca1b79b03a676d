"""The Lightning module: losses of nodes, optimizer, schedule."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch_geometric.data import HeteroData

from gnnperf.gnn.models.gnn import WORK, NodeOutput, TypedGNN
from gnnperf.gnn.training.config import OptimConfig

# The optimizer: AdamW, but the step of a matrix between states is its orthogonalized momentum (Muon, Jordan 2024).
# torch.optim.Muon computes in bfloat16, matrix by matrix: on CPUs that takes longer than the network. These matrices
# have one shape, so all of them are one batch here.

MOMENTUM = 0.95
# Step of a matrix, whose singular values are about 1, relative to AdamW's: as 0.02 to 0.003. With 0.05 to 0.003,
# validation nodes of `workload` err more after 20 epochs (15.2 instead of 15.0 %).
RELATIVE_STEP = 20 / 3
# Newton-Schulz iteration of odd polynomials a x + b x^3 + c x^5, which brings singular values of (0, 1] to 0.7 to 1.2.
POLYNOMIAL, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
SMALLEST_NORM = 1e-7


class Muon(torch.optim.AdamW):
    """AdamW of `parameters`, except for `matrices` among them: all of one square shape."""

    def __init__(
        self, parameters: Iterable[Tensor], matrices: Sequence[Tensor], learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, lr=learning_rate, weight_decay=weight_decay, fused=True)
        self.matrices = tuple(matrices)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step along the gradients that `closure` computes; afterwards, matrices have no gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._step_matrices()
        super().step()  # of what still has a gradient
        return loss

    def _step_matrices(self) -> None:
        """The direction is Nesterov's momentum, orthogonalized; weights decay as AdamW's.

        A gradient of zeros, as of a node type that a batch lacks, is no gradient: normalized, the momentum before it
        would take steps as large as any other.
        """
        given = [matrix for matrix in self.matrices if matrix.grad is not None]
        if not given:
            return
        every = torch.stack([matrix.grad for matrix in given if matrix.grad is not None])  # [n, size, size]
        for matrix in given:
            matrix.grad = None
        has = every.flatten(1).any(dim=1)  # [n]
        moved = [matrix for matrix, one in zip(given, has.tolist(), strict=True) if one]
        if not moved:
            return
        gradients, momenta = list(every[has]), [self._momentum(matrix) for matrix in moved]
        torch._foreach_lerp_(momenta, gradients, 1.0 - MOMENTUM)
        directions = orthogonalized(torch.stack(torch._foreach_lerp(gradients, momenta, MOMENTUM)))
        group = self.param_groups[0]
        step = RELATIVE_STEP * group["lr"]
        torch._foreach_mul_(moved, 1.0 - step * group["weight_decay"])
        torch._foreach_sub_(moved, list(directions), alpha=step)

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:  # AdamW expects a step in every state that it loads
            state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(matrix)}
        result: Tensor = state["momentum"]
        return result


def orthogonalized(matrices: Tensor) -> Tensor:
    """[n, size, size] -> the same with all singular values at about 1; a matrix of zeros stays one."""
    first, third, fifth = POLYNOMIAL
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(SMALLEST_NORM)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=third, alpha=fifth), x, beta=first)
    return x


MOST_ABOVE = 1.5
Estimates = Mapping[str, NodeOutput]


@dataclass(frozen=True)
class LabeledNodes:
    """The labeled nodes of all work types, [n] each."""

    # residual, scheduled_residual: predicted
    residual: Tensor
    scheduled_residual: Tensor
    # target, steady_target: log(latency / base), of isolated ops: over all steps, and as a schedule adds it up
    target: Tensor
    steady_target: Tensor
    time_share: Tensor  # share of the step's busy time, scaled to mean 1


def labeled(batch: HeteroData, estimates: Estimates) -> LabeledNodes:
    """Predictions and labels of the nodes that have a label."""
    target, steady = (torch.cat([batch[t][name] for t in WORK]) for name in ("target", "steady_target"))
    use = torch.isfinite(target)  # [num work nodes]
    return LabeledNodes(
        residual=torch.cat([estimates[t].residual for t in WORK])[use],
        scheduled_residual=torch.cat([estimates[t].scheduled_residual for t in WORK])[use],
        target=target[use],
        steady_target=torch.where(torch.isfinite(steady), steady, target)[use],  # 0 in the steady steps: no target
        time_share=torch.cat([batch[t].time_share for t in WORK])[use],
    )


def robust(predicted: Tensor, target: Tensor, delta: float) -> Tensor:
    """[n], [n] -> [n] |error| beyond `delta`, quadratic below (Huber 1964, over delta): symmetric in log space."""
    return torch.nn.functional.huber_loss(predicted, target, reduction="none", delta=delta) / delta


def of_mean(predicted: Tensor, target: Tensor) -> Tensor:
    """[n], [n] -> [n] gamma deviance of exp(target): least at the log of its mean, which steps add up, not the median.

    Linear where a label is exp(MOST_ABOVE) times the prediction or more.
    """
    above = target - predicted
    bounded = above.clamp(max=MOST_ABOVE)
    return torch.expm1(bounded) + math.exp(MOST_ABOVE) * (above - bounded) - above


def node_error(errors: Tensor, nodes: LabeledNodes, share_weight: float) -> Tensor:
    """Weighted mean of errors, [n] -> scalar.

    A node counts (1 - share_weight) for itself and share_weight for the root of its time share. The share itself would
    let a handful of nodes dominate: a step has thousands of short nodes, and some that are ten thousand times longer.
    """
    weight = (1.0 - share_weight) + share_weight * nodes.time_share.sqrt()  # [n]
    return (errors * weight).sum() / weight.sum().clamp_min(1e-12)


class LatencyModule(lightning.LightningModule):
    """Trains a TypedGNN on node latencies; the seed is of dropout."""

    def __init__(self, model: TypedGNN, config: OptimConfig, seed: int) -> None:
        super().__init__()
        self.model, self.config, self.seed = model, config, seed

    def on_train_batch_start(self, batch: HeteroData, batch_idx: int) -> None:
        """Dropout depends on seed and batch only, so that a resumed run repeats an uninterrupted one."""
        count = self.config.batches_per_step
        torch.manual_seed(self.seed * 1_000_003 + self.global_step * count + batch_idx % count)

    def training_step(self, batch: HeteroData, step: int) -> Tensor:
        """Weighted loss of one batch."""
        value = self._loss(batch, self.model(batch))
        size = {"batch_size": batch.num_graphs}
        self.log("train_loss", value, on_epoch=True, on_step=False, prog_bar=True, sync_dist=True, **size)
        return value

    def validation_step(self, batch: HeteroData, step: int) -> None:
        """Log the loss and the mean |log error| of the nodes of one batch."""
        estimates = self.model(batch)
        nodes = labeled(batch, estimates)
        size = {"batch_size": batch.num_graphs}
        self.log("val_loss", self._loss(batch, estimates), prog_bar=True, **size)
        self.log("val_log_error", (nodes.residual - nodes.target).abs().sum() / max(len(nodes.target), 1), **size)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Linear warm-up and cosine decay over all steps."""
        config = self.config
        optimizer = Muon(self.parameters(), self.model.matrices(), config.learning_rate, config.weight_decay)
        total = max(int(self.trainer.estimated_stepping_batches), 1)
        schedule = LambdaLR(optimizer, lambda step: learning_rate_share(step, total, config.warmup_share))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _loss(self, batch: HeteroData, estimates: Estimates) -> Tensor:
        """A sum of terms; a weight of 0 leaves its term out."""
        config, nodes = self.config, labeled(batch, estimates)
        loss = node_error(robust(nodes.residual, nodes.target, config.huber_delta), nodes, config.share_weight)
        if config.scheduled_weight > 0:
            scheduled = of_mean(nodes.scheduled_residual, nodes.steady_target)
            loss = loss + config.scheduled_weight * node_error(scheduled, nodes, config.share_weight)
        return loss


def learning_rate_share(step: int, total: int, warmup_share: float) -> float:
    """Share of the peak learning rate at an optimizer step: linear from 0, then half a cosine to 0."""
    warmup = max(round(warmup_share * total), 1)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(total - warmup, 1)))
