"""Checkpoint file -> the network that trained before. Both kinds are known: of recorded runs, and of op tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gnnperf.checkpoint import Checkpoint, load_checkpoint
from gnnperf.data.earlier import Earlier
from gnnperf.data.relations import REVERSE_PREFIX
from gnnperf.errors import InputError
from gnnperf.models.config import ModelConfig
from gnnperf.models.gnn import TypedGNN
from gnnperf.models.message_passing import message_relations
from gnnperf.pretrain.op_checkpoint import is_op_checkpoint, load_op_checkpoint
from gnnperf.schema import Relation

OURS = "a checkpoint.pt that train.py wrote, of recorded runs or of op tables"
OP_RELATIONS = (f"{REVERSE_PREFIX}{Relation.RUNS_ON}",)  # all that a graph of one op has


@dataclass(frozen=True)
class Start:
    """Where a training starts that is not the first.

    Attributes:
        model: what the network is.
        weights: its parameters, name -> tensor.
        earlier: words, scales and base that it knows.
        relations: those along which it was told something; the weights of others are as they were drawn.
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
        network = TypedGNN(self.model, self.earlier.vocabulary)
        network.load_state_dict(dict(self.weights))
        return network.eval()


def load_start(path: Path) -> Start:
    """Read a checkpoint of `train.py`: of recorded runs, or the one of op tables that ships.

    Of the two networks of op tables it is the one for GPUs that trained: it knows sizes best, and a GPU that is traced
    is one that trains.

    Raises:
        InputError: no such file, not a checkpoint, of another schema, or damaged.
    """
    if not path.is_file():
        raise InputError("no such file", where=f"init_from={path}", allowed=OURS)
    if is_op_checkpoint(path):
        ops = load_op_checkpoint(path)
        one = ops.own
        return Start(one.model, one.weights, Earlier(one.vocabulary, one.normalizer, None), OP_RELATIONS,
                     str(path), ops.sha256)  # fmt: skip
    return start_of(load_checkpoint(path), str(path))


def start_of(checkpoint: Checkpoint, where: str) -> Start:
    """The same of a checkpoint of recorded runs that is at hand.

    Args:
        checkpoint: of recorded runs.
        where: it is from, for messages.
    """
    earlier = Earlier(checkpoint.vocabulary, checkpoint.normalizer, (checkpoint.constants, checkpoint.floors))
    relations = message_relations(checkpoint.model)
    return Start(checkpoint.model, checkpoint.weights, earlier, relations, where, checkpoint.sha256)
