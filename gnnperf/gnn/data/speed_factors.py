"""How much longer one machine takes than another for each node, from runs that both recorded.

    latency here = measured there x exp(sum of effects of the node's classes)

    class                                       prior, runs
    kind of node                                0.001
    family and dtype                            0.01
    op                                          0.03
    op, between the same ops of its lane        0.03
    kind, about so long                         0.01        lengths are interpolated between powers of 4 us
    family, about so long                       0.03

Effects are a ridge regression (Hoerl and Kennard 1970) with the loss of Huber (1964). Its prior is as strong as so many
runs: an effect that few nodes have falls back to the coarser ones. Errors hardly depend on it
(docs/benchmarks/intervals.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import require
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.runs import node_kinds

PRIOR_RUNS = np.array([0.001, 0.01, 0.03, 0.03, 0.01, 0.01, 0.03, 0.03])  # [num_effects], of a node's classes
KNOTS = (-0.5, 6.5)  # first and last power of 4 us
MOST_EFFECT = 20.0  # on the logarithm: no two machines are farther apart
LANE = ["rank", "thread", "stream"]
TIME_SHARE, DELTA, ROUNDS = 0.5, 0.3, 6  # weight by the root of time; of the loss; of reweighting


@dataclass(frozen=True)
class SpeedFactors:
    """Effects of classes on log(latency here / there)."""

    effects: Mapping[str, float]

    def __post_init__(self) -> None:
        most = max(map(abs, self.effects.values()), default=0.0)
        require(most <= MOST_EFFECT and all(map(math.isfinite, self.effects.values())), "speed_factors", most,
                f"effects from -{MOST_EFFECT:g} to {MOST_EFFECT:g}")  # fmt: skip

    def moved_us(self, nodes: pd.DataFrame, there_us: np.ndarray) -> np.ndarray:
        """[num_nodes] expected latencies here of what took `there_us` [num_nodes]; NaN: not measured."""
        names, values = _classes(nodes, there_us)
        known = pd.Series(self.effects, dtype=np.float64).reindex(names.ravel()).fillna(0.0).to_numpy()
        return there_us * np.exp((known.reshape(names.shape) * values).sum(axis=1).clip(-MOST_EFFECT, MOST_EFFECT))


@dataclass(frozen=True)
class MeasuredTwice:
    """A step that both machines measured."""

    nodes: pd.DataFrame
    here_us: np.ndarray  # [num_nodes] each; NaN or 0: unknown
    there_us: np.ndarray


def fit_speed_factors(steps: Sequence[MeasuredTwice]) -> SpeedFactors:
    """Effects from steps of different runs; each run has the same weight. Of no steps there are none."""
    parts = [part for step in steps if len((part := _observed(step))[0])]
    if not parts:
        return SpeedFactors({})
    names, values, log_ratio, weight = (np.concatenate(one) for one in zip(*parts, strict=True))
    flat, classes = pd.factorize(names.ravel())
    code, count = flat.reshape(names.shape), len(classes)
    prior = np.zeros(count)
    prior[code] = PRIOR_RUNS
    pair = (code[:, :, None] * count + code[:, None, :]).ravel()
    product = values[:, :, None] * values[:, None, :]  # [n, num_effects, num_effects]
    effect, robust = np.zeros(count), np.ones(len(weight))
    for _ in range(ROUNDS):
        used = weight * robust
        normal = np.bincount(pair, (used[:, None, None] * product).ravel(), count**2).reshape(count, count)
        target = np.bincount(code.ravel(), ((used * log_ratio)[:, None] * values).ravel(), count)
        effect = np.linalg.solve(normal + np.diag(prior), target)
        off = np.abs(log_ratio - (effect[code] * values).sum(axis=1))
        robust = DELTA / np.maximum(off, DELTA)
    return SpeedFactors(dict(zip(map(str, classes), effect.tolist(), strict=True)))


def _observed(step: MeasuredTwice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of nodes that both measured: classes and values [n, num_effects], log(here / there) and weight [n], sum 1."""
    known = (np.nan_to_num(step.here_us) > 0) & (np.nan_to_num(step.there_us) > 0)  # [num_nodes]
    here_us, there_us = step.here_us[known], step.there_us[known]
    weight = (1 - TIME_SHARE) + TIME_SHARE * np.sqrt(here_us / max(here_us.mean(), 1e-12)) if known.any() else here_us
    names, values = (each[known] for each in _classes(step.nodes, step.there_us))
    return names, values, np.log(here_us / there_us), weight / max(len(weight), 1)


def _classes(nodes: pd.DataFrame, there_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes, num_effects] classes of each node and their values, 0 where nothing was measured."""
    known = np.nan_to_num(there_us) > 0  # [num_nodes]
    length = np.clip(np.log2(np.where(known, there_us, 1.0)) / 2, *KNOTS) + 0.5  # [num_nodes] in powers of 4 us
    knot = np.floor(length)
    above = length - knot  # share of the next knot
    at = [" @" + (knot + more).astype(int).astype(str).astype(object) for more in (0, 1)]
    kind = node_kinds(nodes)
    family, op = kind + " " + texts_of(nodes["family"]), kind + " op " + texts_of(nodes["op_name"])
    of_lane = pd.Series(op).groupby([nodes[name].to_numpy() for name in LANE])
    before, after = (of_lane.shift(by).fillna("").to_numpy(object) for by in (1, -1))
    names = [kind, family + " " + texts_of(nodes["dtype"]), op, op + " < " + before + " > " + after,
             *(kind + one for one in at), *(family + one for one in at)]  # fmt: skip
    values = np.stack([*np.ones((4, len(nodes))), *[1 - above, above] * 2], axis=1)
    return np.stack(names, axis=1), values * known[:, None]
