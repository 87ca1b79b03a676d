"""Weights that were trained before -> a network for more words, more features, more rounds of messages.

What is new starts without a say, so that the first answer is the earlier network's, and everything learns from there:

    new word            the row of the unknown word, which is what the earlier network took it for
    feature that was    0: its column was never trained
    constant before
    relation that the   0: nothing was ever sent along it
    network had not
    further rounds      their last layer 0: a round that adds nothing to the state

Nodes of a type that no graph had keep an encoder and a head as they were drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnperf.gnn.data.vocabulary import UNKNOWN
from gnnperf.gnn.finetune.start import Start
from gnnperf.gnn.models.gnn import WORK, TypedGNN


def begin_from(network: TypedGNN, start: Start) -> TypedGNN:
    """Give a fresh network the weights of an earlier one, in place.

    Within the ranges of the earlier training, and among node types that it had, it answers what the earlier network
    answered.

    Args:
        network: fresh, for the joined vocabulary (PreparedData of `start.earlier`), of a shape that load_start let by.
        start: the earlier one.
    """
    own, before = dict(network.named_parameters()), dict(start.network().named_parameters())
    with torch.no_grad():
        for name, values in own.items():
            if _adds_news(name, start):
                values.zero_()
        for name, trained in before.items():
            if _was_trained(name, start):
                own[name].copy_(_extended(trained, own[name]))
        for node_type in filter(start.earlier.normalizer.occurred, WORK):
            own[f"encoders.{node_type}.linear.weight"][:, start.earlier.normalizer.constant(node_type)] = 0.0
    return network


def _adds_news(parameter: str, start: Start) -> bool:
    """Whether it would add what the earlier network did not know: a further round, a new relation in a known one."""
    layer, relation = _layer(parameter), _relation(parameter)
    if layer is None:
        return False
    if layer >= start.model.num_layers:
        return ".out." in parameter
    return relation is not None and relation not in start.relations


def _was_trained(parameter: str, start: Start) -> bool:
    """Whether an earlier parameter was moved: its relation was heard, its node type occurred."""
    margin, node_type = parameter.split(".")[:2]
    if margin == "layers":
        return _relation(parameter) in (None, *start.relations)
    return start.earlier.normalizer.occurred(node_type)


def _layer(parameter: str) -> int | None:
    """Number of the round that `layers.<round>.…` is of; None: of none."""
    parts = parameter.split(".")
    return int(parts[1]) if parts[0] == "layers" else None


def _relation(parameter: str) -> str | None:
    """Of `layers.<round>.relations.<relation>.weight`; None: of no relation."""
    parts = parameter.split(".")
    return parts[3] if parts[0] == "layers" and parts[2] == "relations" else None


def _extended(trained: Tensor, into: Tensor) -> Tensor:
    """Rows of new words behind those that are known: each the unknown word's."""
    more = len(into) - len(trained)
    return torch.cat([trained, trained[UNKNOWN : UNKNOWN + 1].expand(more, *trained.shape[1:])]) if more else trained
