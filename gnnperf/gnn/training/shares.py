"""Which share of a network's corrections counts, for each kind of node, by steps that were not trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.data.step_time import contended_step_time_us

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # from which is chosen
MIN_GROUPS, DEVIATIONS = 5, 2.0  # groups, and standard errors of a gain over them, that change a step's share


@dataclass(frozen=True)
class Judged:
    """A step and what a network predicts that was not trained on it."""

    step: Step
    residuals: np.ndarray  # [2, num_nodes] of usual and of scheduled latencies
    kind: np.ndarray  # [num_nodes] object; each kind of node has shares of its own
    group: str  # of steps that err together: a run, a program


def usual_shares(judged: Sequence[Judged]) -> dict[str, float]:
    """Kind with labels -> the share with the least |log(predicted / label)| of nodes, as a mean over groups' means."""
    errors: dict[str, dict[str, list[np.ndarray]]] = {}  # kind -> group -> steps of [num_shares, n]
    for one in judged:
        target = one.step.stored("target")
        off = np.abs(np.outer(SHARES, one.residuals[0]) - target)  # [num_shares, num_nodes]
        for kind in set(one.kind[np.isfinite(target)]):
            own = (one.kind == kind) & np.isfinite(target)
            errors.setdefault(kind, {}).setdefault(one.group, []).append(off[:, own])
    means = {kind: np.mean([np.hstack(steps).mean(axis=1) for steps in of_kind.values()], axis=0)
             for kind, of_kind in sorted(errors.items())}  # fmt: skip
    return {kind: SHARES[int(np.argmin(mean))] for kind, mean in means.items()}


def scheduled_shares(judged: Sequence[Judged], start: Mapping[str, float]) -> dict[str, float]:
    """Kind -> the share whose steps err least, if they err less than with `start` by more than chance over groups.

    What a kind's corrections change in a step is scheduled once, with all of them. Shares and kinds add in log space.
    """
    groups = sorted({one.group for one in judged})
    if len(groups) < MIN_GROUPS:
        return dict(start)
    members = [np.array([one.group == group for one in judged]) for group in groups]
    effects = np.array([_effects(one, list(start)) for one in judged])  # [num_steps, 1 + num_kinds]
    chosen = np.array([1.0, *start.values()])
    for place in range(1, len(chosen)):
        off = np.array([np.abs(effects @ np.r_[chosen[:place], share, chosen[place + 1 :]])
                        for share in (chosen[place], *SHARES)])  # fmt: skip  # [1 + num_shares, num_steps]
        errors = np.stack([off[:, mine].mean(axis=1) for mine in members], axis=1)  # [1 + num_shares, num_groups]
        gain = errors[0] - errors
        is_clear = gain.mean(axis=1) > DEVIATIONS * gain.std(axis=1, ddof=1) / math.sqrt(len(groups))
        best = int(np.argmin(np.where(is_clear, errors.mean(axis=1), np.inf)))
        chosen[place] = SHARES[best - 1] if is_clear[best] else chosen[place]
    return dict(zip(start, chosen[1:].tolist(), strict=True))


def _effects(one: Judged, kinds: Sequence[str]) -> list[float]:
    """log(predicted / measured) of the base, and by how much the corrections of each kind change it."""
    base_us = one.step.stored("base_us")
    without = math.log(contended_step_time_us(one.step, base_us) / one.step.step_us)
    result = [without]
    for kind in kinds:
        residual = np.where(one.kind == kind, one.residuals[1], 0.0)
        if residual.any():
            corrected_us = contended_step_time_us(one.step, base_us * np.exp(residual))
            result.append(math.log(corrected_us / one.step.step_us) - without)
        else:
            result.append(0.0)  # nothing is corrected
    return result
