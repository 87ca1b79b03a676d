"""Checkpoint file -> the network that trained before. Both kinds are known: of recorded runs, and of op tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gnnperf.core.errors import InputError
from gnnperf.core.schema import Relation
from gnnperf.gnn.checkpoint import Checkpoint, load_checkpoint
from gnnperf.gnn.data.earlier import Earlier
from gnnperf.gnn.data.relations import REVERSE_PREFIX
from gnnperf.gnn.models.config import ModelConfig
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import HARDWARE_RELATIONS, REVERSE_RELATIONS, message_relations
from gnnperf.gnn.models.stored import network_of
from gnnperf.gnn.pretrain.op_checkpoint import is_op_checkpoint, load_op_checkpoint

ANSWERING = "heads.compute.last."  # what tables say of three ops is not said of all kernels of a trace
OP_RELATIONS = (f"{REVERSE_PREFIX}{Relation.RUNS_ON}",)  # all that a graph of one op has


@dataclass(frozen=True)
class Start:
    """Where a training starts that is not the first.

    Attributes:
        model: what the network is.
        weights: its parameters, name -> tensor.
        earlier: words, scales and base that it knows.
        relations: those along which it could be told something; the weights of others are as they were drawn.
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
    """Read a checkpoint of `train.py`: of recorded runs, or the one of op tables that ships.

    Of the two networks of op tables it is the one for GPUs that trained: it knows sizes best, and a GPU that is traced
    is one that trains. What it knows of kernels and devices stays; its answers start from the base, because they are
    corrections of the few ops that tables have.

    Args:
        path: the file.
        model: the network that is to go on.

    Raises:
        InputError: no such file, not a checkpoint, of another schema, damaged, or of another network.
    """
    start = _of_ops(path) if is_op_checkpoint(path) else start_of(load_checkpoint(path), str(path))
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


def _of_ops(path: Path) -> Start:
    ops = load_op_checkpoint(path)
    one = ops.own
    earlier = Earlier(one.vocabulary, one.normalizer, "gpu", True, None)
    weights = {name: torch.zeros_like(w) if name.startswith(ANSWERING) else w for name, w in one.weights.items()}
    return Start(one.model, weights, earlier, OP_RELATIONS, str(path), ops.sha256)


def _check_fits(model: ModelConfig, start: Start) -> None:
    for name in ("hidden_channels", "max_residual"):
        had, asked = getattr(start.model, name), getattr(model, name)
        if had != asked:
            raise _unlike(start, f"model.{name}={asked}", f"{had}, as in the checkpoint")
    if model.num_layers < start.model.num_layers:
        raise _unlike(start, f"model.num_layers={model.num_layers}", f"{start.model.num_layers} or more")
    for name, relations in (("reverse", REVERSE_RELATIONS), ("hardware_nodes", HARDWARE_RELATIONS)):
        if not getattr(model, name) and set(relations) & set(start.relations):
            raise _unlike(start, f"model.{name}=False", "True, as in the checkpoint")


def _unlike(start: Start, what: str, allowed: str) -> InputError:
    return InputError(f"{what}: not the network that is in the checkpoint", where=start.where, allowed=allowed)
