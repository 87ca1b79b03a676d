"""Fine-tuning: a checkpoint's weights become the start of a network for more tokens and features.

Everything new starts without effect, so that the first prediction is the earlier network's, and all weights train from
there:

    new token                      row of the unknown token
    feature that never varied      0: its column was never trained

Nodes of a type that no graph had keep a random encoder and head.
"""

from pathlib import Path

import torch
from torch import Tensor

from gnnperf.core import InputError
from gnnperf.gnn.checkpoint import Checkpoint, load_checkpoint
from gnnperf.gnn.data.vocabulary import UNKNOWN
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.settings import ModelConfig


def load_start(path: Path, model: ModelConfig) -> Checkpoint:
    """Read a checkpoint of `train.py`, to fine-tune a network of this configuration.

    Raises InputError: no such file, not a checkpoint, of another schema, damaged, or of another network.
    """
    start = load_checkpoint(path)
    for name in ("hidden_channels", "num_layers"):
        had, requested = getattr(start.model, name), getattr(model, name)
        if had != requested:
            raise InputError(f"model.{name}={requested}: not the network that is in the checkpoint", where=str(path),
                             allowed=f"{had}, as in the checkpoint")  # fmt: skip
    return start


def begin_from(network: TypedGNN, start: Checkpoint) -> TypedGNN:
    """Give a fresh network the weights of an earlier one, in place.

    It is of the joined vocabulary (PreparedData of `start.earlier`), and of a shape that load_start accepts.
    """
    own, before = dict(network.named_parameters()), start.normalizer
    with torch.no_grad():
        for name, trained in start.weights.items():
            kind, node_type = name.split(".")[:2]
            if kind == "layers" or before.occurred(node_type):  # others had no gradients
                own[name].copy_(_extended(trained, own[name]))
        for node_type in filter(before.occurred, WORK):
            own[f"encoders.{node_type}.linear.weight"][:, before.constant(node_type)] = 0.0
    return network


def _extended(trained: Tensor, into: Tensor) -> Tensor:
    """Rows of new tokens after the known ones, each that of the unknown token."""
    more = len(into) - len(trained)
    return torch.cat([trained, trained[UNKNOWN : UNKNOWN + 1].expand(more, *trained.shape[1:])]) if more else trained
