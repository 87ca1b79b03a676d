"""Checkpoint file -> initial weights of a training that continues an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gnnperf.core import InputError
from gnnperf.gnn.checkpoint import Checkpoint
from gnnperf.gnn.checkpoint_formats import read_checkpoint
from gnnperf.gnn.data.prepare import Earlier
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import REVERSE_RELATIONS, ModelConfig, message_relations
from gnnperf.gnn.models.stored import network_of


@dataclass(frozen=True)
class Start:
    """Where a training starts that is not the first.

    Attributes:
        model: what the network is.
        weights: its parameters, name -> tensor.
        earlier: words, scales and base that it knows.
        relations: those along which it could be given something; the weights of others are as they were drawn.
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
    """Read a checkpoint of `train.py`, or of a format that is installed (gnnperf.gnn.checkpoint_formats).

    Args:
        path: the file.
        model: the network that is to go on.

    Raises:
        InputError: no such file, not a checkpoint, of another schema, damaged, or of another network.
    """
    checkpoint, where = read_checkpoint(path), str(path)
    start = start_of(checkpoint, where) if isinstance(checkpoint, Checkpoint) else checkpoint.start(where)
    _check_fits(model, start)
    return start


def start_of(checkpoint: Checkpoint, where: str) -> Start:
    """The same of a checkpoint of recorded runs that is at hand.

    Args:
        checkpoint: of recorded runs.
        where: it is from, for messages.
    """
    base = checkpoint.constants, checkpoint.floors
    earlier = Earlier(checkpoint.vocabulary, checkpoint.normalizer, base[0].device_kind, base[1].residual, base)
    relations = message_relations(checkpoint.model) if checkpoint.model.num_layers else ()
    return Start(checkpoint.model, checkpoint.weights, earlier, relations, where, checkpoint.sha256)


def _check_fits(model: ModelConfig, start: Start) -> None:
    for name in ("hidden_channels", "max_residual"):
        had, requested = getattr(start.model, name), getattr(model, name)
        if had != requested:
            raise _unlike(start, f"model.{name}={requested}", f"{had}, as in the checkpoint")
    if model.num_layers < start.model.num_layers:
        raise _unlike(start, f"model.num_layers={model.num_layers}", f"{start.model.num_layers} or more")
    if not model.reverse and set(REVERSE_RELATIONS) & set(start.relations):
        raise _unlike(start, "model.reverse=False", "True, as in the checkpoint")


def _unlike(start: Start, what: str, allowed: str) -> InputError:
    return InputError(f"{what}: not the network that is in the checkpoint", where=start.where, allowed=allowed)
