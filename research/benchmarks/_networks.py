"""The hybrid as a row: what `predict.py mode=hybrid` predicts for the recordings that the table judges."""

import fcntl
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gnnperf.core import code_of
from gnnperf.gnn import PreparedData, build_model, fit, keep_what_helps, leaving_programs_out, shrunk, unseen_shares
from gnnperf.gnn.checkpoint import SCHEMA_VERSION, Checkpoint, load_checkpoint, make_checkpoint, save_checkpoint
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.trust import fit_trust
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.network import Network, PredictorEstimate, TrainedNetwork

FILE = "checkpoint.pt"


@dataclass(frozen=True)
class CachedNetwork:
    """The network as a row that is trained once for what it learns from, and goes on where it was killed."""

    network: Network
    folder: Path = field(repr=False)

    def fit(self, data: PreparedData, seed: int) -> TrainedNetwork:
        """Trained with shrunk corrections, or as it was saved."""
        return TrainedNetwork(self.checkpoint(data, seed).network())

    def checkpoint(self, data: PreparedData, seed: int) -> Checkpoint:
        """The same with all that it needs to predict."""
        given = (data.training_fingerprint, repr(self.network), code_of("gnn/models", "gnn/training"), SCHEMA_VERSION)
        path = self.folder / f"{seed}-{content_digest(*given)[:12]}" / FILE  # no axis: two may train on the same
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / "lock").open("w") as lock:  # one process trains, others wait for the file
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                config = replace(self.network.config, seed=seed, out=str(path.parent), resume="auto")
                with leaving_programs_out(config, data, partial(build_model, config, data)) as judged:
                    trained = fit(config, data, build_model(config, data))
                    left_out = judged()
                shrinkage = keep_what_helps(trained, data)
                unseen = unseen_shares([shrunk(one, shrinkage) for one in left_out])
                save_checkpoint(path, make_checkpoint(trained, config.model, data, {"seed": seed}, unseen))
        return load_checkpoint(path)


BLENDS = ("gnn/trust.py", "predict")


@dataclass(frozen=True)
class Hybrid:
    """A network where training had such nodes, and the analytical model elsewhere."""

    network: CachedNetwork
    code: str = field(default_factory=lambda: code_of(*BLENDS))

    def fit(self, data: PreparedData, seed: int) -> PredictorEstimate:
        """The network's weights are kept; what decides between both predictors is as in this code."""
        retained = self.network.checkpoint(data, seed)
        now = replace(retained, trust=fit_trust(data.steps["train"], retained.trust.unseen))
        return PredictorEstimate(BlendedPredictor(GnnPredictor(now)).predict_step)
