"""How the network is trained on op tables (research code does it; train.py checks the settings without it)."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnperf.core import require
from gnnperf.gnn.models.message_passing import ModelConfig


def one_round() -> ModelConfig:
    """The network of traces with one round of messages: an isolated node has its device to hear of, once."""
    return ModelConfig(num_layers=1)


@dataclass
class PretrainConfig:
    """Settings of one training (not frozen: Hydra composes into it).

    Attributes:
        model: the network.
        steps: of the optimizer.
        rows_per_step: of a batch.
        rows_per_group: most rows of a device and op that train.
        learning_rate: peak of the schedule (linear warm-up, cosine decay).
        weight_decay: AdamW's.
        huber_delta: |log error| from which the loss is linear.
    """

    model: ModelConfig = field(default_factory=one_round)
    steps: int = 200
    rows_per_step: int = 512
    rows_per_group: int = 1000
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    huber_delta: float = 0.1

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(self.steps >= 1, "pretrain.steps", self.steps, "a whole number >= 1")
        require(self.rows_per_step >= 1, "pretrain.rows_per_step", self.rows_per_step, "a whole number >= 1")
        require(self.rows_per_group >= 1, "pretrain.rows_per_group", self.rows_per_group, "a whole number >= 1")
        require(self.learning_rate > 0, "pretrain.learning_rate", self.learning_rate, "a number > 0")
        require(self.weight_decay >= 0, "pretrain.weight_decay", self.weight_decay, "a number >= 0")
        require(self.huber_delta > 0, "pretrain.huber_delta", self.huber_delta, "a number > 0")


def own_gpus() -> PretrainConfig:
    """Of the network for GPUs that it was trained on: many steps, for sizes between those of the tables."""
    return PretrainConfig(steps=3000, rows_per_group=4000)


@dataclass
class OpTablesConfig:
    """A checkpoint of op tables (not frozen: Hydra composes into it).

    Attributes:
        mirror: folder of public op tables; empty: train.py trains on recorded runs.
        own: of the network for GPUs that it was trained on.
        others: of the network for GPUs that no one trained on.
        keep: where fitted constants of the inner loop are kept, so that a stopped training goes on.
    """

    mirror: str = ""
    own: PretrainConfig = field(default_factory=own_gpus)
    others: PretrainConfig = field(default_factory=PretrainConfig)
    keep: str = "outputs/pretrain"
