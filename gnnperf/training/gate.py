"""What the network may answer: a node type it answers worse than its base on the validation runs keeps the base."""

from __future__ import annotations

import numpy as np

from gnnperf.data.prepare import PreparedData
from gnnperf.evaluate.metrics import summarize
from gnnperf.models.gnn import WORK, TypedGNN
from gnnperf.training.evaluate import predicted


def keep_what_helps(network: TypedGNN, data: PreparedData) -> tuple[str, ...]:
    """Silence the heads that do not beat their base on the validation runs; test runs are never looked at.

    Returns:
        the node types that keep their base from here on.
    """
    lost = tuple(t for t in WORK if _loses(network, data, t))
    for node_type in lost:
        network.silence(node_type)
    return lost


def _loses(network: TypedGNN, data: PreparedData, node_type: str) -> bool:
    answers, bases, measured = [], [], []
    for step in data.steps["val"]:
        store = step.data[node_type]
        answers.append(predicted(network, step)[node_type])
        bases.append(store.base_us.numpy())
        measured.append(store.latency_us.numpy())
    if not measured:
        return False
    labels = np.concatenate(measured)
    trained, base = (summarize(np.concatenate(found), labels).gmae for found in (answers, bases))
    return bool(np.isfinite(base) and trained >= base and not network.is_silent(node_type))
