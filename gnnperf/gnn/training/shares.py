"""Which share of a network's corrections counts, for each kind of node, by steps that were not trained on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from gnnperf.core import Mapped, in_turn
from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.data.step_time import contended_step_time_us

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # from which is chosen
# Groups, and standard errors of a gain over them, for another share to count in steps. By chance, one of 125 passes in
# 15, 6, 2 and 1 % of choices with 5, 8, 24 and 48 groups; with `least_deviations` in 5, 2, 1 and 0 % (simulated).
MIN_GROUPS, DEVIATIONS = 5, 2.5
# Of corrections in steps of programs that train: on validation runs of four splits better than none on each, and than
# what few runs choose (docs/benchmarks/network.md).
HALF = 0.5


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


def scheduled_shares(
    judged: Sequence[Judged], usual: Mapping[str, float], start: float = 0.0, mapped: Mapped = in_turn
) -> dict[str, float]:
    """Kind -> share, chosen for hosts, kernels and transfers together: errors of one part hide those of another.

    All kinds of a node type keep one share of what they keep for nodes: `start` of SHARES, unless steps err less with
    others by more than chance over groups; none with few groups. What a type's corrections change in a step is
    scheduled once, with all of them, and adds in log space.
    """
    groups = sorted({one.group for one in judged})
    if len(groups) < MIN_GROUPS:
        return dict.fromkeys(usual, 0.0)
    types = sorted({_type_of(kind) for kind in usual})
    choices = np.array(list(product(SHARES, repeat=len(types))))  # [num_choices, num_types]
    unchanged = int(np.flatnonzero((choices == start).all(axis=1))[0])
    weighed = mapped(partial(_effects, usual=usual, types=types), judged, "weighing corrections")
    effects = np.array(weighed)  # [num_steps, 1 + num_types]
    off = np.abs(effects[:, :1] + effects[:, 1:] @ choices.T)  # [num_steps, num_choices]
    members = [np.array([one.group == group for one in judged]) for group in groups]
    errors = np.stack([off[mine].mean(axis=0) for mine in members])  # [num_groups, num_choices]
    gain = errors[:, [unchanged]] - errors
    is_clear = gain.mean(axis=0) > least_deviations(len(groups)) * gain.std(axis=0, ddof=1) / math.sqrt(len(groups))
    place = int(np.argmin(np.where(is_clear, errors.mean(axis=0), np.inf))) if is_clear.any() else unchanged
    chosen = dict(zip(types, choices[place].tolist(), strict=True))
    return {kind: share * chosen[_type_of(kind)] for kind, share in usual.items()}


def least_deviations(num_groups: int) -> float:
    """Student's t at the level of DEVIATIONS, by three terms of a series (Abramowitz and Stegun 1964, 26.7.5)."""
    z, free = DEVIATIONS, num_groups - 1
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / free**power for power, term in enumerate(terms, 1))


def _type_of(kind: str) -> str:
    return kind.partition(" ")[0]


def _effects(one: Judged, usual: Mapping[str, float], types: Sequence[str]) -> list[float]:
    """log(predicted / measured) of the base, and by how much the corrections of each node type change it."""
    base_us = one.step.stored("base_us")
    corrections = one.residuals[1] * np.array([usual.get(kind, 0.0) for kind in one.kind])  # [num_nodes]
    node_type = np.array([_type_of(kind) for kind in one.kind])
    corrected = [np.where(node_type == name, corrections, 0.0) for name in types]
    without, *others = (math.log(contended_step_time_us(one.step, base_us * np.exp(residual)) / one.step.step_us)
                        for residual in (np.zeros(len(corrections)), *corrected))  # fmt: skip
    return [without, *(other - without for other in others)]
