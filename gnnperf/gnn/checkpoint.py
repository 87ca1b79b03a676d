"""A trained model in one file that describes itself: tensors, numbers and text. Loading runs no code."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from gnnperf import __version__
from gnnperf.analytic import AnalyticConstants, constants_from_plain
from gnnperf.core import InputError, checked, checked_json
from gnnperf.gnn.data.archive import Archive, read_archive, refused_in, write_archive
from gnnperf.gnn.data.floors import TypedFloors
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.prepare import Earlier, PreparedData
from gnnperf.gnn.data.speed_factors import SpeedFactors
from gnnperf.gnn.data.vocabulary import Vocabulary
from gnnperf.gnn.intervals.steps import Intervals
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.stored import check_network, feature_names
from gnnperf.gnn.settings import ModelConfig
from gnnperf.gnn.trust import Shares, Trust, fit_trust

FORMAT, SCHEMA_VERSION = "gnnperf checkpoint", 15
LIBRARIES = ("torch", "torch-geometric", "lightning", "numpy", "pandas")
OURS = "a checkpoint.pt that train.py wrote"
RETRAIN = "train again with this version of gnnperf"


@dataclass(frozen=True)
class Checkpoint:
    """A trained model and all it needs to predict."""

    model: ModelConfig  # configuration of the network
    vocabulary: Vocabulary  # tokens of the training runs
    constants: AnalyticConstants  # of the analytical base, which the weights correct
    floors: TypedFloors  # bases where the analytical model has no prediction
    normalizer: Normalizer  # feature statistics of the training runs
    weights: Mapping[str, Tensor]  # parameter name -> tensor
    # devices and programs of the training runs, and what held in left-out programs, which decide where the network's
    # latency is taken
    trust: Trust
    provenance: Mapping[str, Any]  # gnnperf and library versions, data set fingerprint, split, seed, training settings
    intervals: Intervals | None = None  # of its predictions; None: it was not calibrated
    # expected latency on this machine / on the source machine (data.source); None: there is none
    speed_factors: SpeedFactors | None = None
    sha256: str = ""  # of the file; "" before it is saved

    def network(self) -> TypedGNN:
        """The network in evaluation mode."""
        network = TypedGNN(self.model, self.vocabulary)
        network.load_state_dict(dict(self.weights))
        return network.eval()

    @property
    def earlier(self) -> Earlier:
        """What a training that starts from these weights keeps."""
        return Earlier(self.vocabulary, self.normalizer, (self.constants, self.floors))


def make_checkpoint(
    network: TypedGNN, model: ModelConfig, data: PreparedData, training: Mapping[str, Any],
    unseen: Mapping[str, Shares] | None = None,
) -> Checkpoint:  # fmt: skip
    """A checkpoint of a network of this configuration, trained on these data.

    `training`: how, in JSON values (seed, optimizer settings). `unseen`: kind of node -> what counts in other programs
    (training.folds); None: nothing.
    """
    provenance = {
        "gnnperf": __version__,
        "libraries": {name: version(name) for name in LIBRARIES},
        "data_fingerprint": data.fingerprint,
        "split_axis": data.split.axis,
        "training_runs": list(data.split.train),
        "training": json.loads(json.dumps(training)),  # enums become text: the file holds plain values only
    }
    weights = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
    trust = fit_trust(data.steps["train"], unseen)
    parts = (data.vocabulary, data.constants, data.floors, data.normalizer, weights, trust)
    return Checkpoint(model, *parts, provenance, speed_factors=data.speed_factors)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Write the file whole or not at all; returns the checkpoint with the file's sha256."""
    parts = vars(checkpoint.normalizer)
    normalizer = {f"normalizer/{part}/{t}": tensor for part, of in parts.items() for t, tensor in of.items()}
    weights = {f"weights/{name}": tensor for name, tensor in checkpoint.weights.items()}
    return dataclasses.replace(checkpoint, sha256=write_archive(path, _to_plain(checkpoint), normalizer | weights))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        InputError: no such file, of another format or schema, or damaged.
    """
    stored = read_archive(path, OURS)
    with refused_in(path, RETRAIN):
        header = checked(stored.plain, _Header)
    if header.format != FORMAT:
        raise InputError(f"not a {FORMAT}", where=str(path), allowed=OURS)
    if header.schema_version != SCHEMA_VERSION or header.features != feature_names():
        raise InputError(f"schema version {header.schema_version}, or features of another gnnperf", where=str(path),
                         allowed=f"schema version {SCHEMA_VERSION}", remedy=RETRAIN)  # fmt: skip
    with refused_in(path, RETRAIN):
        checkpoint = _from_plain(stored)
        check_network(checkpoint.model, checkpoint.vocabulary, checkpoint.normalizer, checkpoint.weights)
    return checkpoint


@dataclass(frozen=True)
class _Header:
    format: str = ""
    schema_version: int = 0
    features: Mapping[str, list[str]] = field(default_factory=dict)


def _to_plain(checkpoint: Checkpoint) -> dict[str, Any]:
    factors = checkpoint.speed_factors
    return {
        "format": FORMAT, "schema_version": SCHEMA_VERSION, "features": feature_names(),
        "model": dataclasses.asdict(checkpoint.model), "vocabulary": dataclasses.asdict(checkpoint.vocabulary),
        "constants": _plain_constants(checkpoint.constants), "floors": dataclasses.asdict(checkpoint.floors),
        "trust": dataclasses.asdict(checkpoint.trust), "provenance": dict(checkpoint.provenance),
        "intervals": None if checkpoint.intervals is None else dataclasses.asdict(checkpoint.intervals),
        "speed_factors": None if factors is None else dataclasses.asdict(factors),
    }  # fmt: skip


def _from_plain(stored: Archive) -> Checkpoint:
    plain = stored.plain
    tensors: dict[str, dict[str, Tensor]] = {}  # group, of the normalizer with its part -> name -> tensor
    for name, tensor in stored.tensors.items():
        group, _, last = name.rpartition("/")
        tensors.setdefault(group, {})[last] = tensor
    parts = {
        "constants": constants_from_plain(plain.get("constants"), "constants"),
        "provenance": checked_json(plain.get("provenance"), "provenance"),
        "normalizer": {one.name: tensors.get(f"normalizer/{one.name}") for one in dataclasses.fields(Normalizer)},
        "weights": tensors.get("weights"),
        "sha256": stored.sha256,
    }
    return checked({**plain, **parts}, Checkpoint)


def _plain_constants(constants: AnalyticConstants) -> dict[str, Any]:
    coefficients = constants.op_prices
    rest = dataclasses.asdict(dataclasses.replace(constants, op_prices=None))
    by_op = {" | ".join(key): us for key, us in constants.host_overhead_us.items()}
    return {**rest, "host_overhead_us": by_op, "op_prices": None if coefficients is None else coefficients.to_plain()}
