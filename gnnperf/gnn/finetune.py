"""Fine-tuning: a checkpoint's weights become the start of a network for more tokens, features, rounds and relations.

Everything new starts without effect, so that the first prediction is the earlier network's, and all weights train from
there:

    new token                      row of the unknown token
    feature that never varied      0: its column was never trained
    new relation                   0
    further rounds                 last layer 0: nothing is added to the state

Nodes of a type that no graph had keep a random encoder and head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gnnperf.core import InputError
from gnnperf.gnn.checkpoint import Checkpoint, load_checkpoint
from gnnperf.gnn.data.prepare import Earlier
from gnnperf.gnn.data.vocabulary import UNKNOWN
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.models.message_passing import REVERSE_RELATIONS, ModelConfig, message_relations
from gnnperf.gnn.models.stored import network_of


@dataclass(frozen=True)
class Start:
    """Where a fine-tuning starts.

    Attributes:
        model: configuration of the earlier network.
        weights: its parameters, name -> tensor.
        earlier: vocabulary, scales and base of the earlier training.
        relations: those that carried messages; the weights of others are untrained.
        where: the file.
        sha256: of it.
    """

    model: ModelConfig
    weights: Mapping[str, Tensor]
    earlier: Earlier
    relations: tuple[str, ...]
    where: str
    sha256: str

    def network(self) -> TypedGNN:
        """The network in evaluation mode."""
        return network_of(self.model, self.earlier.vocabulary, self.weights)


def load_start(path: Path, model: ModelConfig) -> Start:
    """Read a checkpoint of `train.py`.

    Args:
        path: the file.
        model: configuration of the network to fine-tune.

    Raises:
        InputError: no such file, not a checkpoint, of another schema, damaged, or of another network.
    """
    start = start_of(load_checkpoint(path), str(path))
    for name in ("hidden_channels", "max_residual"):
        had, requested = getattr(start.model, name), getattr(model, name)
        if had != requested:
            raise _unlike(start, f"model.{name}={requested}", f"{had}, as in the checkpoint")
    if model.num_layers < start.model.num_layers:
        raise _unlike(start, f"model.num_layers={model.num_layers}", f"{start.model.num_layers} or more")
    if not model.reverse and set(REVERSE_RELATIONS) & set(start.relations):
        raise _unlike(start, "model.reverse=False", "True, as in the checkpoint")
    return start


def start_of(checkpoint: Checkpoint, where: str) -> Start:
    """The same from a loaded checkpoint of recorded runs.

    Args:
        checkpoint: of recorded runs.
        where: its file, for messages.
    """
    base = checkpoint.constants, checkpoint.floors
    earlier = Earlier(checkpoint.vocabulary, checkpoint.normalizer, base[0].device_kind, base[1].residual, base)
    relations = message_relations(checkpoint.model) if checkpoint.model.num_layers else ()
    return Start(checkpoint.model, checkpoint.weights, earlier, relations, where, checkpoint.sha256)


def _unlike(start: Start, what: str, allowed: str) -> InputError:
    return InputError(f"{what}: not the network that is in the checkpoint", where=start.where, allowed=allowed)


def begin_from(network: TypedGNN, start: Start) -> TypedGNN:
    """Give a fresh network the weights of an earlier one, in place.

    Args:
        network: fresh, for the joined vocabulary (PreparedData of `start.earlier`), of a shape that load_start accepts.
        start: the earlier one.
    """
    own, before = dict(network.named_parameters()), dict(start.network().named_parameters())
    with torch.no_grad():
        for name, values in own.items():
            if _is_new(name, start):
                values.zero_()
        for name, trained in before.items():
            if _was_trained(name, start):
                own[name].copy_(_extended(trained, own[name]))
        for node_type in filter(start.earlier.normalizer.occurred, WORK):
            own[f"encoders.{node_type}.linear.weight"][:, start.earlier.normalizer.constant(node_type)] = 0.0
    return network


def _is_new(parameter: str, start: Start) -> bool:
    """Whether it is the output of a further round, or of a new relation in a known round."""
    parts = parameter.split(".")
    if parts[0] != "layers":
        return False
    if int(parts[1]) >= start.model.num_layers:
        return ".out." in parameter
    return _relation(parameter) not in (None, *start.relations)


def _was_trained(parameter: str, start: Start) -> bool:
    """Whether an earlier parameter had gradients: of a relation with messages, or of a node type that occurred."""
    kind, node_type = parameter.split(".")[:2]
    if kind == "layers":
        return _relation(parameter) in (None, *start.relations)
    return start.earlier.normalizer.occurred(node_type)


def _relation(parameter: str) -> str | None:
    """Of `layers.<round>.relations.<relation>.weight`; None: of no relation."""
    parts = parameter.split(".")
    return parts[3] if parts[0] == "layers" and parts[2] == "relations" else None


def _extended(trained: Tensor, into: Tensor) -> Tensor:
    """Rows of new tokens after the known ones, each that of the unknown token."""
    more = len(into) - len(trained)
    return torch.cat([trained, trained[UNKNOWN : UNKNOWN + 1].expand(more, *trained.shape[1:])]) if more else trained
