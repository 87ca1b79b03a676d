"""Errors of a row as sums per run and seed, so that whole runs and seeds can be drawn: a draw costs one product.

The metric was fixed before any model was trained: exp(mean(ln(max(|predicted / measured - 1|, 0.001)))).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import InputError
from gnnperf.gnn.evaluation.metrics import APE_FLOOR, absolute_percentage_error
from research.evaluation.records import EvaluationRecord

LEVEL, NUM_DRAWS = 0.95, 1000  # of bootstrap intervals
Statistic = Callable[[np.ndarray], float]


@dataclass(frozen=True)
class RunSums:
    """A weighted mean of logs in parts."""

    runs: tuple[str, ...]  # names of runs, sorted
    total: np.ndarray  # [num_seeds, num_runs] sum of weight x ln(error)
    weight: np.ndarray  # [num_seeds, num_runs] sum of weights

    @property
    def value(self) -> float:
        """The geometric mean over all runs and seeds."""
        return float(np.exp(self.total.sum() / self.weight.sum()))

    def of_draws(self, counts: np.ndarray) -> np.ndarray:
        """Geometric means of each seed, [num_draws, num_seeds], of runs drawn counts [num_draws, num_runs] times."""
        mean: np.ndarray = (counts @ self.total.T) / (counts @ self.weight.T)  # [num_draws, num_seeds]
        return np.exp(mean)

    def interval(self) -> tuple[float, float]:
        """Percentile bootstrap (Efron 1979), 95 %, of runs and seeds; NaN with fewer than two runs."""
        num_seeds, num_runs = self.total.shape
        if num_runs < 2:
            return float("nan"), float("nan")
        draw = np.random.default_rng(0)
        runs = draws(draw, num_runs, NUM_DRAWS)  # [num_draws, num_runs]
        seeds = draws(draw, num_seeds, NUM_DRAWS)  # [num_draws, num_seeds]
        total, weight = ((runs @ part.T * seeds).sum(axis=1) for part in (self.total, self.weight))  # [num_draws]
        low, high = np.quantile(np.exp(total / weight), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def draws(draw: np.random.Generator, size: int, num_draws: int) -> np.ndarray:
    """[num_draws, size] how often each of `size` is drawn, with replacement, as many as there are."""
    return draw.multinomial(size, np.full(size, 1.0 / size), size=num_draws)


def node_gmae(records: Sequence[EvaluationRecord]) -> RunSums | None:
    """Every labeled node counts the same; None: no node predictions."""
    return _of_nodes(records, lambda nodes: np.ones(len(nodes)))


def node_gmae_by_time(records: Sequence[EvaluationRecord]) -> RunSums | None:
    """A node counts by its measured latency."""
    return _of_nodes(records, lambda nodes: nodes["measured_us"].to_numpy(np.float64))


def step_geomean(records: Sequence[EvaluationRecord]) -> RunSums | None:
    """The same formula over steps, one per recording."""
    return _stacked([_sums(c.steps, c.steps["run"].to_numpy(), np.ones(len(c.steps))) for c in records])


METRICS: Mapping[str, Callable[[Sequence[EvaluationRecord]], RunSums | None]] = {
    "node GMAE": node_gmae, "node GMAE by time": node_gmae_by_time, "step geomean": step_geomean,
}  # fmt: skip


def _of_nodes(records: Sequence[EvaluationRecord], weights: Callable[[pd.DataFrame], np.ndarray]) -> RunSums | None:
    tables = [(c.nodes, c.steps["run"].to_numpy()) for c in records if c.nodes is not None]
    if len(tables) < len(records):
        return None
    return _stacked([_sums(nodes, runs[nodes["recording"].to_numpy()], weights(nodes)) for nodes, runs in tables])


def _sums(table: pd.DataFrame, runs: np.ndarray, weight: np.ndarray) -> RunSums:
    predicted, measured = (table[name].to_numpy(np.float64) for name in ("predicted_us", "measured_us"))
    logs = np.log(np.maximum(absolute_percentage_error(predicted, measured), APE_FLOOR))  # [n]
    run, names = pd.factorize(runs, sort=True)  # [n], [num_runs]
    return RunSums(tuple(map(str, names)), np.bincount(run, weight * logs)[None], np.bincount(run, weight)[None])


def _stacked(seeds: Sequence[RunSums]) -> RunSums:
    if len({one.runs for one in seeds}) != 1:
        raise InputError("seeds of one row were judged on different runs", where="cells",
                         remedy="python -m research.benchmarks.learned makes such cells again")  # fmt: skip
    return RunSums(seeds[0].runs, np.concatenate([s.total for s in seeds]), np.concatenate([s.weight for s in seeds]))


def interval_over_groups(values: np.ndarray, groups: np.ndarray, statistic: Statistic) -> tuple[float, float]:
    """Percentile bootstrap (Efron 1979), groups drawn NUM_DRAWS times with replacement.

    Lower and upper end, between which LEVEL of the draws lie; NaN with fewer than two groups. Of `values` [n], NaN
    does not count; `groups` [n] are names or numbers of the run or pair.
    """
    use = ~np.isnan(values)
    names, group = np.unique(groups[use], return_inverse=True)
    if len(names) < 2:
        return float("nan"), float("nan")
    parts = [values[use][group == number] for number in range(len(names))]
    draws = np.random.default_rng(0).integers(0, len(names), size=(NUM_DRAWS, len(names)))
    different, place = np.unique(np.sort(draws, axis=1), axis=0, return_inverse=True)  # of few groups, few draws are
    result = np.array([statistic(np.concatenate([parts[number] for number in draw])) for draw in different])
    low, high = np.quantile(result[place.ravel()], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
