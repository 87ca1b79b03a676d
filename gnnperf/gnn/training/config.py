"""Settings of train.py (conf/train.yaml and its groups). Dataclasses are not frozen, because Hydra composes into them.

Enum names are lower case because that is how Hydra spells an enum on the command line.
"""

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum

from gnnperf.core import require
from gnnperf.gnn.settings import DataConfig, ModelConfig
from gnnperf.hardware import HardwareConfig

EVALUATED = ("val", "test")  # parts of a split
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")  # of rows and splits, which name folders


class LoggerKind(StrEnum):
    """Where the curves go."""

    csv = "csv"
    wandb = "wandb"


class LearnerKind(StrEnum):
    """Who is trained."""

    network = "network"  # the typed graph network, which becomes a checkpoint
    trees = "trees"  # gradient-boosted trees on a node's own features
    trees_hops = "trees_hops"  # the same, with the features of its neighbors
    trivial = "trivial"  # nothing: trivial predictors


@dataclass
class OptimConfig:
    """Optimizer and loss."""

    # AdamW's, at the peak of the schedule (linear warm-up, cosine decay); matrices between states take larger steps
    # (`training.optimizer`)
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4  # relative to the learning rate, as AdamW's
    warmup_share: float = 0.05  # share of all optimizer steps spent warming up
    # batches whose gradients an optimizer step adds up: large batches in the memory of small ones
    batches_per_step: int = 1
    gradient_clip: float = 1.0  # largest gradient norm
    # |log error| from which the loss is linear; small, because latencies have heavy tails on both sides
    huber_delta: float = 0.05
    share_weight: float = 0.5  # 0: every node counts the same; 1: by the root of its share of the step's busy time
    scheduled_weight: float = 0.3  # of scheduled latencies, relative to usual ones; 0: they are the same

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(0 < self.learning_rate <= 10, "optim.learning_rate", self.learning_rate, "0 < learning_rate <= 10")
        require(self.weight_decay >= 0, "optim.weight_decay", self.weight_decay, "a number >= 0")
        require(0 <= self.warmup_share < 1, "optim.warmup_share", self.warmup_share, "0 <= warmup_share < 1")
        require(self.gradient_clip > 0, "optim.gradient_clip", self.gradient_clip, "a number > 0")
        require(self.batches_per_step >= 1, "optim.batches_per_step", self.batches_per_step, "a whole number >= 1")
        require(self.huber_delta > 0, "optim.huber_delta", self.huber_delta, "a number > 0")
        require(0 <= self.share_weight <= 1, "optim.share_weight", self.share_weight, "0 to 1")
        require(self.scheduled_weight >= 0, "optim.scheduled_weight", self.scheduled_weight, "a number >= 0")


@dataclass
class TrainerConfig:
    """The loop."""

    max_epochs: int = 30  # passes over the training steps
    progress_bar: bool = True  # draw one
    threads: int = 1  # CPU threads; 1 keeps results bit-identical on every machine with the same libraries

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(self.max_epochs >= 1, "trainer.max_epochs", self.max_epochs, "a whole number >= 1")
        require(1 <= self.threads <= 1024, "trainer.threads", self.threads, "1 to 1024")


@dataclass
class LoggerConfig:
    """Where the curves go."""

    kind: LoggerKind = LoggerKind.csv  # csv (metrics.csv below `out`) or wandb
    project: str = "gnnperf"  # wandb project
    offline: bool = False  # keep the wandb run on disk, to be synced later


@dataclass
class LearnerConfig:
    """Which learner."""

    # which; only the network takes its settings from `model`, `optim` and `trainer`
    kind: LearnerKind = LearnerKind.network
    settings: dict[str, float] = field(default_factory=dict)  # of a simpler learner, by name; others keep their default

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        fits = self.kind not in (LearnerKind.network, LearnerKind.trivial)
        require(fits or not self.settings, "learner.settings", self.settings, f"none where the learner is {self.kind}")
        for name, value in self.settings.items():
            require(0 < value < math.inf, f"learner.settings.{name}", value, "a number > 0")


@dataclass
class TrainConfig(HardwareConfig):
    """Options of train.py. With `hardware` all runs ran on that device; without, each trace names its own."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    seed: int = 0  # the same seed gives the same bits on a CPU
    out: str = "outputs/train"  # folder for checkpoint.pt, curves and this configuration
    # parts of the split whose errors are computed; a search over settings leaves "test" out
    evaluate_on: list[str] = field(default_factory=lambda: list(EVALUATED))
    # a Lightning checkpoint to continue; "auto": out/last.ckpt if there is one; None: a new training
    resume: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 to 4294967295")
        require(bool(self.out), "out", self.out, "a folder")
        fine = "val" in self.evaluate_on and set(self.evaluate_on) <= set(EVALUATED)
        require(fine, "evaluate_on", self.evaluate_on, "[val] or [val, test]")
