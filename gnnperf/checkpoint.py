"""A trained model in one file that describes itself. Plain tensors, numbers and text: loading runs no code from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnperf import __version__
from gnnperf.analytic import AnalyticConstants
from gnnperf.analytic.cpu_ops.files import prices_from_plain, prices_to_plain
from gnnperf.data.floors import TypedFloors
from gnnperf.data.normalizer import Normalizer
from gnnperf.data.numbers import DEVICE_NAMES, LINK_NAMES, WORK_NAMES
from gnnperf.data.plain import load_plain
from gnnperf.data.prepare import PreparedData
from gnnperf.data.vocabulary import FIELDS, Vocabulary
from gnnperf.errors import InputError
from gnnperf.intervals import Intervals, intervals_from_plain
from gnnperf.models.config import ModelConfig
from gnnperf.models.gnn import TypedGNN
from gnnperf.trust import Trust, fit_trust, trust_from_plain

FORMAT, SCHEMA_VERSION = "gnnperf checkpoint", 9
LIBRARIES = ("torch", "torch-geometric", "lightning", "numpy", "pandas")
OURS = "a checkpoint.pt that train.py wrote"
RETRAIN = "train again with this version of gnnperf"


@dataclass(frozen=True)
class Checkpoint:
    """A trained model and all it needs to answer.

    Attributes:
        model: what the network is.
        vocabulary: words of the training runs.
        constants: of the analytical base; they travel with the weights that correct it.
        floors: bases where the analytical model has no answer.
        normalizer: feature statistics of the training runs.
        weights: parameter name -> tensor.
        trust: what training had, and so how far the network is trusted.
        provenance: what it was made from: gnnperf and library versions, data set fingerprint, split, seed, the
            configuration's training part.
        intervals: how sure its answers are; None: it was not calibrated.
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
    sha256: str = ""

    def network(self) -> TypedGNN:
        """The network in evaluation mode."""
        network = TypedGNN(self.model, self.vocabulary)
        network.load_state_dict(dict(self.weights))
        return network.eval()


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
    parts = (data.vocabulary, data.constants, data.floors, data.normalizer, weights, fit_trust(network, data))
    return Checkpoint(model, *parts, provenance)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Write beside, then rename; returns the checkpoint with the file's sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        torch.save(_to_plain(checkpoint), beside)
        digest = _sha256(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return dataclasses.replace(checkpoint, sha256=digest)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        InputError: no such file, not a checkpoint of gnnperf, of another schema, or damaged.
    """
    plain = load_plain(path, OURS)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise InputError("not a checkpoint of gnnperf", where=str(path), allowed=OURS)
    if plain.get("schema_version") != SCHEMA_VERSION or plain.get("features") != _feature_names():
        found = f"schema version {plain.get('schema_version')} or features of another gnnperf"
        raise InputError(found, where=str(path), allowed=f"schema version {SCHEMA_VERSION}", remedy=RETRAIN)
    try:
        checkpoint = _from_plain(plain, _sha256(path))
        checkpoint.network()
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError("the file is damaged", where=str(path), remedy=RETRAIN) from error
    return checkpoint


def _to_plain(checkpoint: Checkpoint) -> dict[str, Any]:
    floors, normalizer = checkpoint.floors, checkpoint.normalizer
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "features": _feature_names(),
        "model": dataclasses.asdict(checkpoint.model),
        "vocabulary": {t: {f: list(words) for f, words in fs.items()} for t, fs in checkpoint.vocabulary.words.items()},
        "constants": _plain_constants(checkpoint.constants),
        "floors": {k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(floors).items()},
        "normalizer": {name: dict(values) for name, values in vars(normalizer).items()},
        "weights": dict(checkpoint.weights),
        "trust": checkpoint.trust.to_plain(),
        "provenance": dict(checkpoint.provenance),
        "intervals": None if checkpoint.intervals is None else checkpoint.intervals.to_plain(),
    }


def _from_plain(plain: dict[str, Any], sha256: str) -> Checkpoint:
    words = {t: {f: tuple(words) for f, words in fields.items()} for t, fields in plain["vocabulary"].items()}
    return Checkpoint(
        ModelConfig(**plain["model"]),
        Vocabulary(words),
        _constants(plain["constants"]),
        TypedFloors(**plain["floors"]),
        Normalizer(**plain["normalizer"]),
        plain["weights"],
        trust_from_plain(plain["trust"]),
        plain["provenance"],
        None if plain["intervals"] is None else intervals_from_plain(plain["intervals"]),
        sha256,
    )


def _plain_constants(constants: AnalyticConstants) -> dict[str, Any]:
    prices = constants.op_prices
    rest = dataclasses.asdict(dataclasses.replace(constants, op_prices=None))
    return {**rest, "op_prices": None if prices is None else prices_to_plain(prices)}


def _constants(plain: dict[str, Any]) -> AnalyticConstants:
    prices = plain["op_prices"]
    return AnalyticConstants(
        **{**plain, "op_prices": None if prices is None else prices_from_plain(prices, "checkpoint")}
    )


def _feature_names() -> dict[str, list[str]]:
    named = {"work": WORK_NAMES, "device": DEVICE_NAMES, "link": LINK_NAMES, "fields": FIELDS}
    return {kind: list(names) for kind, names in named.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
