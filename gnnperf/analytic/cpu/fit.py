"""Fit op prices: logs of latencies, robust, all ops of a family together, each drawn to the family's prices.

Unknowns are logarithms: the family's prices, each op's factors, each dtype's factor, and two factors of a calibration
(its calls and its traffic are cheaper than a program's: the same call came before, caches and branches are warm).

    minimize   sum_i w_i huber(log predicted_i - log measured_i) + sum_j (strength_j x unknown_j)^2 / n

An op with many calls in many sizes pays its own prices, one with few the family's (a hierarchical model: Gelman, Hill
2007, chapter 12). Gauss and Newton's method, damped (Levenberg, Marquardt); slopes of a log of a sum are shares.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic.cpu.coefficients import BACK_OFF, CoreNumbers, FamilyCoefficients, OpCoefficients
from gnnperf.analytic.cpu.counts import CALLS, COUNTS, TRAFFIC, op_counts, paid_families
from gnnperf.core import InputError

# Where the search starts, us of one count: a core of some 50 GFLOP/s and 10 GB/s. What no call has stays there.
START_US = {
    "call": 3.0, "cold_call": 3.0, "product": 0.3, "tensor": 1.0, "byte": 1e-4, "far_byte": 1e-4, "left": 1e-4,
    "right": 1e-4, "result": 1e-4, "row": 1e-2, "missed_row": 5e-2, "flop": 2e-5, "lane_flop": 2e-4, "element": 1e-4,
    "draw": 1e-2,
}  # fmt: skip
FAMILY_STRENGTH, OP_STRENGTH, SHARED_STRENGTH = 0.1, 1.0, 0.1  # of the draw to the start, the family, and to 1
SLOWEST_TRAFFIC = 10.0  # times its start: traffic of few small calls does not determine that of large ones
OP_TRAFFIC = 3.0  # times its family's, of an op
ROBUST_SCALE = 0.3  # of a log latency: larger misses count linearly
SHORTEST_US = 0.3  # below it a clock of 1 ns and a profiler's own cost decide
TIME_POWER = 0.5  # weight = (time spent in the call in all)^power: neither each shape alike nor long ones only
CALIBRATED_WEIGHT = 1.0  # of a calibrated call; recorded ones weigh 1 on average
RECORDED, CALIBRATED = "recorded", "calibrated"
STEPS, TOLERANCE, LARGEST_MOVE, MOST_DAMPING = 60, 1e-6, 1.0, 1e8


@dataclass(frozen=True)
class _Layout:
    """Which unknown is which: family [J], op x count [O x J], dtype [D], calibrated calls and traffic [2]."""

    counts: tuple[str, ...]
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """J, O x J, D, 2."""
        return len(self.counts), len(self.ops) * len(self.counts), len(self.dtypes), 2

    def split(self, unknowns: np.ndarray) -> list[np.ndarray]:
        """The four parts."""
        return np.split(unknowns, np.cumsum(self.sizes)[:-1])


def fit_op_prices(calls: pd.DataFrame, core: CoreNumbers) -> OpCoefficients:
    """Prices of all families. Raises InputError: no call has known FLOPs or bytes."""
    known = calls[calls["flops"].notna() | calls["bytes"].notna()]
    if known.empty:
        raise InputError("no call with known FLOPs or bytes", where="op prices", remedy="record shapes")
    families = {str(family): _fit_family(rows) for family, rows in known.groupby(paid_families(known))}
    return OpCoefficients({BACK_OFF: FamilyCoefficients(START_US, {}, {}), **families}, core)


def _fit_family(rows: pd.DataFrame) -> FamilyCoefficients:
    counts = op_counts(rows)  # [n, num_counts]
    used = np.flatnonzero(counts.any(axis=0))
    names = tuple(COUNTS[j] for j in used), tuple(sorted(set(rows["op_name"]))), tuple(sorted(set(_dtypes(rows))))
    layout = _Layout(*names)
    return _coefficients(layout, _Problem(layout, rows, counts[:, used]).solve())


def _dtypes(rows: pd.DataFrame) -> pd.Series:
    return rows["dtype"].astype(object).where(rows["dtype"].notna(), "")


def _coefficients(layout: _Layout, unknowns: np.ndarray) -> FamilyCoefficients:
    family, ops, dtypes, _ = layout.split(unknowns)
    price = {count: START_US[count] * float(np.exp(x)) for count, x in zip(layout.counts, family, strict=True)}
    factors = np.exp(ops.reshape(len(layout.ops), -1))
    of_ops = {op: dict(zip(layout.counts, map(float, row), strict=True))
              for op, row in zip(layout.ops, factors, strict=True)}  # fmt: skip
    of_dtypes = dict(zip(layout.dtypes, map(float, np.exp(dtypes)), strict=True))
    # What no call has is not free: it costs what it was expected to.
    return FamilyCoefficients({**START_US, **price}, of_ops, of_dtypes)


class _Problem:
    """One family's [n] calls as arrays; `counts` is [n, J]."""

    def __init__(self, layout: _Layout, rows: pd.DataFrame, counts: np.ndarray) -> None:
        self.layout, self.counts = layout, counts
        self.measured = np.log(np.maximum(rows["latency_us"].to_numpy(float), SHORTEST_US))  # [n]
        self.op = pd.Categorical(rows["op_name"], categories=layout.ops).codes.astype(np.int64)
        self.dtype = pd.Categorical(_dtypes(rows), categories=layout.dtypes).codes.astype(np.int64)
        self.calibrated = (rows["source"] == CALIBRATED).to_numpy(float)  # [n]
        self.weight = _weights(rows)
        self.is_call = np.array([count in CALLS for count in layout.counts], float)  # [J]
        self.is_traffic = np.array([count in TRAFFIC for count in layout.counts], float)  # [J]
        of_family = np.where(self.is_traffic, np.log(SLOWEST_TRAFFIC), np.inf)  # [J]
        of_ops = np.tile(np.where(self.is_traffic, np.log(OP_TRAFFIC), np.inf), len(layout.ops))  # [O x J]
        self.most = np.concatenate([of_family, of_ops, np.full(sum(layout.sizes[2:]), np.inf)])  # [P]
        self.start = np.log([START_US[count] for count in layout.counts])  # [J]
        parts = zip((FAMILY_STRENGTH, OP_STRENGTH, SHARED_STRENGTH, SHARED_STRENGTH), layout.sizes, strict=True)
        self.draw = np.concatenate([np.full(size, strength**2 / len(rows)) for strength, size in parts])  # [P]

    def solve(self) -> np.ndarray:
        """[P] unknowns."""
        x, damping = np.zeros(len(self.draw)), 1e-2
        terms, loss = self._evaluate(x)
        for _ in range(STEPS):
            normal, gradient = self._slopes(x, terms)
            while damping < MOST_DAMPING:
                step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), gradient)
                moved = np.minimum(x + np.clip(step, -LARGEST_MOVE, LARGEST_MOVE), self.most)
                moved_terms, moved_loss = self._evaluate(moved)
                if moved_loss < loss:
                    break
                damping *= 4
            else:
                return x
            gain, loss, x, terms, damping = loss - moved_loss, moved_loss, moved, moved_terms, max(damping / 5, 1e-8)
            if gain < TOLERANCE * loss:
                return x
        return x

    def _evaluate(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Terms [n, J] us, and the loss."""
        family, ops, dtypes, (calls, traffic) = self.layout.split(x)
        log_price = self.start + family + ops.reshape(len(self.layout.ops), -1)[self.op]  # [n, J]
        log_price = log_price + dtypes[self.dtype][:, None] * (1.0 - self.is_call)
        log_price = log_price + self.calibrated[:, None] * (calls * self.is_call + traffic * self.is_traffic)
        terms = self.counts * np.exp(log_price)
        misses = (np.log(terms.sum(axis=1)) - self.measured) / ROBUST_SCALE  # [n]
        robust = 2.0 * ROBUST_SCALE**2 * (np.sqrt(1.0 + misses**2) - 1.0)  # pseudo-Huber (Charbonnier 1994)
        return terms, float(self.weight @ robust + self.draw @ x**2)

    def _slopes(self, x: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normal matrix [P, P] and half the gradient [P]."""
        total = terms.sum(axis=1)
        share = terms / total[:, None]  # [n, J] = d log predicted / d log price
        n, (num_counts, num_ops, num_dtypes, _) = len(total), self.layout.sizes
        slopes = np.zeros((n, len(x)))
        slopes[:, :num_counts] = share
        at = np.arange(n)
        for j in range(num_counts):
            slopes[at, num_counts + self.op * num_counts + j] = share[:, j]
        shared = num_counts + num_ops
        slopes[at, shared + self.dtype] = share @ (1.0 - self.is_call)
        slopes[:, shared + num_dtypes] = self.calibrated * (share @ self.is_call)
        slopes[:, shared + num_dtypes + 1] = self.calibrated * (share @ self.is_traffic)
        misses = np.log(total) - self.measured
        weight = self.weight / np.sqrt(1.0 + (misses / ROBUST_SCALE) ** 2)  # [n]
        normal = slopes.T @ (slopes * weight[:, None]) + np.diag(self.draw)
        return normal, slopes.T @ (weight * misses) + self.draw * x


def _weights(rows: pd.DataFrame) -> np.ndarray:
    recorded = (rows["source"] == RECORDED).to_numpy()
    spent = (rows["latency_us"] * rows["times"]).to_numpy(float) ** TIME_POWER
    mean = spent[recorded].mean() if recorded.any() else 1.0
    weight = np.where(recorded, spent / mean, CALIBRATED_WEIGHT)
    return np.asarray(weight / weight.sum())
