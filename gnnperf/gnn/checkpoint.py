"""A trained model in one file that describes itself. Plain tensors, numbers and text: loading runs no code."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gnnperf import __version__
from gnnperf.analytic import AnalyticConstants, constants_from_plain
from gnnperf.core import checked, checked_json
from gnnperf.gnn.data.floors import TypedFloors
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.plain import refused_in
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.vocabulary import Vocabulary
from gnnperf.gnn.intervals.steps import Intervals
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.models.stored import check_network, feature_names, network_of, read_stored
from gnnperf.gnn.trust import Trust, fit_trust

if TYPE_CHECKING:
    pass

FORMAT, SCHEMA_VERSION = "gnnperf checkpoint", 11
LIBRARIES = ("torch", "torch-geometric", "lightning", "numpy", "pandas")
OURS = "a checkpoint.pt that train.py wrote"
RETRAIN = "train again with this version of gnnperf"


@dataclass(frozen=True)
class Checkpoint:
    """A trained model and all it needs to predict.

    Attributes:
        model: configuration of the network.
        vocabulary: tokens of the training runs.
        constants: of the analytical base, which the weights correct.
        floors: bases where the analytical model has no prediction.
        normalizer: feature statistics of the training runs.
        weights: parameter name -> tensor.
        trust: devices and programs of the training runs, which decide where the network's latency is taken.
        provenance: gnnperf and library versions, data set fingerprint, split, seed, training settings.
        intervals: of its predictions; None: it was not calibrated.
        source_constants: of the analytical model on the source machine (data.source); None: there is none.
        sha256: of the file; "" before it is saved.
    """

    model: ModelConfig
    vocabulary: Vocabulary
    constants: AnalyticConstants
    floors: TypedFloors
    normalizer: Normalizer
    weights: Mapping[str, Tensor]
    trust: Trust
    provenance: Mapping[str, Any]
    intervals: Intervals | None = None
    source_constants: AnalyticConstants | None = None
    sha256: str = ""

    def network(self) -> TypedGNN:
        """The network in evaluation mode."""
        return network_of(self.model, self.vocabulary, self.weights)


def make_checkpoint(
    network: TypedGNN, model: ModelConfig, data: PreparedData, training: Mapping[str, Any]
) -> Checkpoint:
    """A checkpoint of a trained network.

    Args:
        network: the network, trained.
        model: its configuration.
        data: what it was trained on.
        training: how, as what JSON can say (seed, optimizer settings).
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
    parts = (data.vocabulary, data.constants, data.floors, data.normalizer, weights, fit_trust(data.steps["train"]))
    return Checkpoint(model, *parts, provenance, source_constants=data.source_constants)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Write next to, then rename; returns the checkpoint with the file's sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        torch.save(_to_plain(checkpoint), temporary)
        digest = _sha256(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return dataclasses.replace(checkpoint, sha256=digest)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        InputError: no such file, of another format or schema, or damaged.
    """
    stored = read_stored(path, OURS)
    plain = stored.content(FORMAT, SCHEMA_VERSION, OURS, RETRAIN)
    with refused_in(stored.path, RETRAIN):
        checkpoint = _from_plain(plain, stored.sha256)
        check_network(checkpoint.model, checkpoint.vocabulary, checkpoint.normalizer, checkpoint.weights)
    return checkpoint


def _to_plain(checkpoint: Checkpoint) -> dict[str, Any]:
    floors, normalizer = checkpoint.floors, checkpoint.normalizer
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "features": feature_names(),
        "model": dataclasses.asdict(checkpoint.model),
        "vocabulary": {t: {f: list(words) for f, words in fs.items()} for t, fs in checkpoint.vocabulary.words.items()},
        "constants": _plain_constants(checkpoint.constants),
        "floors": {k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(floors).items()},
        "normalizer": {name: dict(values) for name, values in vars(normalizer).items()},
        "weights": dict(checkpoint.weights),
        "trust": dataclasses.asdict(checkpoint.trust),
        "provenance": dict(checkpoint.provenance),
        "intervals": None if checkpoint.intervals is None else checkpoint.intervals.to_plain(),
        "source_constants": (
            None if checkpoint.source_constants is None else _plain_constants(checkpoint.source_constants)
        ),
    }


def _from_plain(plain: dict[str, Any], sha256: str) -> Checkpoint:
    source = plain.get("source_constants")
    parts = {
        "vocabulary": {"words": plain.get("vocabulary")},
        "constants": constants_from_plain(plain.get("constants"), "constants"),
        "source_constants": None if source is None else constants_from_plain(source, "source_constants"),
        "provenance": checked_json(plain.get("provenance"), "provenance"),
        "sha256": sha256,
    }
    return checked({**plain, **parts}, Checkpoint)


def _plain_constants(constants: AnalyticConstants) -> dict[str, Any]:
    coefficients = constants.op_prices
    rest = dataclasses.asdict(dataclasses.replace(constants, op_prices=None))
    return {**rest, "op_prices": None if coefficients is None else coefficients.to_plain()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
