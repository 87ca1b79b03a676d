"""What train.py can be given, all of it."""

from dataclasses import dataclass, field
from pathlib import Path

from gnnperf.core import require
from gnnperf.gnn import NAME, LearnerConfig, LearnerKind, TrainConfig


@dataclass
class EntryConfig(TrainConfig):
    """What train.py can be given."""

    # who is trained; the network, unless it states otherwise
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    row: str = "gnn"  # what the learner is called in tables of several
    cells: str = ""  # folder for evaluation records of several trainings to be compared (research); empty: `out`/cells
    init_from: str | None = None  # a checkpoint.pt whose network trains on with these runs; None: a new one

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        require(bool(NAME.fullmatch(self.row)), "row", self.row, "letters, digits, _ . + -")
        require(self.init_from != "", "init_from", self.init_from, "a checkpoint.pt, or null for a new network")
        compared = self.init_from is not None and Path(self.init_from).resolve().parent == Path(self.out).resolve()
        require(not compared, "out", self.out, "another folder than that of init_from, whose checkpoint would be lost")

    @property
    def trains_network(self) -> bool:
        """Whether there will be a checkpoint; else an entry point of "gnnperf.trainers" trains."""
        return self.learner.kind is LearnerKind.network
