"""Networks of op tables in one file that describes itself: plain tensors, numbers and text, no code."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnperf.core import NotNegative, Positive, Share, checked, checked_json
from gnnperf.gnn import ModelConfig
from gnnperf.gnn.data.normalizer import Normalizer
from gnnperf.gnn.data.plain import refused_in
from gnnperf.gnn.data.vocabulary import Vocabulary
from gnnperf.gnn.models.stored import StoredFile, check_network, feature_names, network_of, read_stored
from gnnperf.hardware import DeviceSpec, device_names, load_device
from research.pretraining.encode import EncodedRows
from research.pretraining.fit import OpModel, residuals
from research.pretraining.observation import Observation, Wait

FORMAT, SCHEMA_VERSION = "gnnperf op checkpoint", 1
OURS = "a checkpoint.pt that `train.py experiment=pretrained` wrote"
RETRAIN = "python train.py experiment=pretrained"
TRAINED = Path("outputs/op-tables/checkpoint.pt")  # where that writes it


@dataclass(frozen=True)
class OpNetwork:
    """One network, and what its inputs need.

    Attributes:
        model: what it is.
        vocabulary: words of the training rows.
        normalizer: of their features.
        observation: of their measuring methods.
        weights: parameter name -> tensor.
    """

    model: ModelConfig
    vocabulary: Vocabulary
    normalizer: Normalizer
    observation: Observation
    weights: Mapping[str, Tensor]

    def residual(self, rows: EncodedRows) -> Tensor:
        """[n] log(device latency / base)."""
        return residuals(network_of(self.model, self.vocabulary, self.weights), self.normalizer, rows)


@dataclass(frozen=True)
class KindAnswer:
    """Where a kind of op is answered, and how much of the correction is kept, in log space.

    Attributes:
        kind: name of a research.pretraining.rows.Kind.
        devices: of the catalog, that trained on it and gain from it on sizes that no one trained on.
        own_share: on these devices; 0: the closed form.
        others_share: on all other GPUs; 0: the closed form.
    """

    kind: str
    devices: tuple[str, ...]
    own_share: Share
    others_share: Share

    def is_own(self, device: DeviceSpec) -> bool:
        """Whether the device is one of those, with the catalog's numbers: another clock is another GPU."""
        return device.name in self.devices and device.name in device_names() and device == load_device(device.name)


@dataclass(frozen=True)
class OpCheckpoint:
    """Everything that answers for single ops.

    Attributes:
        own: the network for GPUs that it was trained on.
        others: the one for GPUs that no one trained on.
        answers: where they are requested.
        provenance: what they were made from: sources, rows, versions, errors on rows that were held out.
        sha256: of the file; "" before it is saved.
    """

    own: OpNetwork
    others: OpNetwork
    answers: tuple[KindAnswer, ...]
    provenance: Mapping[str, Any]
    sha256: str = ""

    def answer_of(self, kind: str) -> KindAnswer:
        """Of a kind; of one that is not in the file: nowhere."""
        return next((one for one in self.answers if one.kind == kind), KindAnswer(kind, (), 0.0, 0.0))


def op_network(model: OpModel, config: ModelConfig) -> OpNetwork:
    weights = {name: tensor.detach().clone() for name, tensor in model.network.state_dict().items()}
    return OpNetwork(config, model.prepared.vocabulary, model.normalizer, model.prepared.observation, weights)


def save_op_checkpoint(path: Path, checkpoint: OpCheckpoint) -> OpCheckpoint:
    """Write next to, then rename; returns the checkpoint with the file's sha256."""
    held = io.BytesIO()  # the name of a file would be in its bytes
    torch.save(_to_plain(checkpoint), held)
    path.parent.mkdir(parents=True, exist_ok=True)
    compared = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        compared.write_bytes(held.getvalue())
        os.replace(compared, path)
    finally:
        compared.unlink(missing_ok=True)
    return replace(checkpoint, sha256=hashlib.sha256(held.getvalue()).hexdigest())


def load_op_checkpoint(path: Path) -> OpCheckpoint:
    return op_checkpoint_from(read_stored(path, OURS))


def op_checkpoint_from(file: StoredFile) -> OpCheckpoint:
    """The checkpoint in a file that was read."""
    plain = file.content(FORMAT, SCHEMA_VERSION, OURS, RETRAIN)
    with refused_in(file.path, RETRAIN):
        stored = checked(plain, _Stored)
        provenance = checked_json(stored.provenance, "provenance")
        return OpCheckpoint(_network(stored.own), _network(stored.others), stored.answers, provenance, file.sha256)


def _to_plain(checkpoint: OpCheckpoint) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "features": feature_names(),
        "own": _plain_network(checkpoint.own),
        "others": _plain_network(checkpoint.others),
        "answers": [{**asdict(one), "devices": list(one.devices)} for one in checkpoint.answers],
        "provenance": json.loads(json.dumps(checkpoint.provenance)),
    }


def _plain_network(network: OpNetwork) -> dict[str, Any]:
    waits, shares = network.observation.waits, network.observation.shares
    return {
        "model": asdict(network.model),
        "vocabulary": {t: {f: list(words) for f, words in fs.items()} for t, fs in network.vocabulary.words.items()},
        "normalizer": {name: dict(values) for name, values in vars(network.normalizer).items()},
        "waits": [[*key, *asdict(wait).values()] for key, wait in waits.items()],
        "wait_shares": [[*key, share] for key, share in shares.items()],
        "weights": dict(network.weights),
    }


@dataclass(frozen=True)
class _StoredNetwork:
    """What `_plain_network` makes, with its types."""

    model: ModelConfig
    vocabulary: Mapping[str, Mapping[str, tuple[str, ...]]]
    normalizer: Normalizer
    waits: tuple[tuple[str, str, NotNegative, Share, Positive, NotNegative], ...]
    wait_shares: tuple[tuple[str, str, str, Positive], ...]
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class _Stored:
    """What `_to_plain` makes, with its types."""

    own: _StoredNetwork
    others: _StoredNetwork
    answers: tuple[KindAnswer, ...]
    provenance: Mapping[str, Any]


def _network(stored: _StoredNetwork) -> OpNetwork:
    waits = {(source, table): Wait(*numbers) for source, table, *numbers in stored.waits}
    shares = {(source, device, table): share for source, device, table, share in stored.wait_shares}
    vocabulary, observation = Vocabulary(stored.vocabulary), Observation(waits, shares)
    check_network(stored.model, vocabulary, stored.normalizer, stored.weights)
    return OpNetwork(stored.model, vocabulary, stored.normalizer, observation, stored.weights)
