"""How far the network may correct: per node type, as far as it helped on the validation runs.

A head learned from few nodes says too much: its corrections are right in direction and too large. So each type keeps
the share of its corrections, in log space, that errs least there; 0 leaves the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import torch

from gnnperf.core import each
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import WORK, TypedGNN
from gnnperf.gnn.models.segmented import answers_of

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)


def keep_what_helps(network: TypedGNN, data: PreparedData) -> dict[str, float]:
    """Take back what did not help on the validation runs; test runs are never looked at.

    Returns:
        the node types that keep less than all of their corrections from here on -> the share.
    """
    errors = [_errors(_with_share(network, share), data) for share in each(SHARES, "trying shares", "shares")]
    best = {t: SHARES[int(np.nanargmin([e[t] for e in errors]))] for t in WORK if np.isfinite(errors[0][t])}
    reduced = {t: share for t, share in best.items() if share < 1 and not network.is_silent(t)}
    for node_type, share in reduced.items():
        network.shrink(node_type, share)
    return reduced


def _with_share(network: TypedGNN, share: float) -> TypedGNN:
    copy = deepcopy(network)
    for node_type in WORK:
        copy.shrink(node_type, share)
    return copy


@torch.no_grad()
def _errors(network: TypedGNN, data: PreparedData) -> Mapping[str, float]:
    """Work type -> mean |log(answer / label)| over its labeled nodes, of isolated ops; NaN without any."""
    result: dict[str, list[np.ndarray]] = {t: [] for t in WORK}
    for step in data.steps["val"]:
        for node_type, answer in answers_of(network.eval(), step.data).items():
            off = (answer.residual - step.data[node_type].target).abs().numpy()  # [n]
            result[node_type].append(off[np.isfinite(off)])
    every = {t: np.concatenate([*parts, np.zeros(0)]) for t, parts in result.items()}
    return {t: float(errors.mean()) if len(errors) else float("nan") for t, errors in every.items()}
