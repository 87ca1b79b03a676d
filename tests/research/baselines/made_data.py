"""The synthetic data set with two recordings of its test run, and answers by hand."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from synthetic import SPLIT, read

from gnnperf.gnn import ModelConfig, RunGraph
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, Step, prepare
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig
from research.baselines.judge import Estimate
from research.baselines.network import Network


def learner() -> Network:
    """The network at its smallest."""
    return Network(TrainConfig(model=ModelConfig(hidden_channels=8, num_layers=1),
                               trainer=TrainerConfig(max_epochs=2, progress_bar=False)))  # fmt: skip


def twice_recorded(cache: Path) -> PreparedData:
    """Run f twice: f/1 and f/2, in which every latency is 10 % longer and the step 20 %."""
    split = replace(SPLIT, test=("f/1", "f/2"))

    def recorded(name: str) -> RunGraph:
        result = replace(read(name[0]), run=name, workload="toy" if name.startswith("f") else "")
        if not name.endswith("/2"):
            return result
        (label,) = result.graph.steps
        nodes = result.graph.nodes.assign(latency_us=1.1 * result.graph.nodes["latency_us"])
        longer = replace(label, makespan_us=1.2 * label.makespan_us)
        return replace(result, graph=replace(result.graph, nodes=nodes, steps=(longer,), fingerprint=name))

    return prepare(DataConfig(cache_dir=str(cache)), split, recorded)


@dataclass(frozen=True)
class Scaled(Estimate):
    """Measured latencies and steps times a factor; knows nothing of collectives. `seed` counts in percent."""

    factor: float
    fits: Path | None = None  # how often it was fitted, appended to by `fit`

    def fit(self, data: PreparedData, seed: int) -> "Scaled":
        """One more line in `fits`."""
        if self.fits is not None:
            with self.fits.open("a") as file:
                file.write(f"{seed}\n")
        return Scaled(self.factor + seed / 100)

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]."""
        collective = (step.nodes["node_type"] == "collective").to_numpy()
        return np.where(collective, np.nan, self.factor * step.nodes["latency_us"].to_numpy(np.float64))

    def step_us(self, step: Step) -> float:
        """Of the step measured."""
        return self.factor * step.step_us
