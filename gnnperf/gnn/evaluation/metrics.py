"""How far predictions are from measurements. Every formula is over pairs of positive latencies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

APE_FLOOR = 0.001  # below a tenth of a percent clocks do not resolve a difference
ALL = "all"  # node types
NUM_DRAWS = 1000  # of the bootstrap
RESOLUTION_US = 0.001  # traces count nanoseconds: anything shorter is rounding, not a measurement


def is_measured(latency_us: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: a label that an error can be relative to (neither unknown nor zero)."""
    return np.nan_to_num(latency_us) >= RESOLUTION_US


@dataclass(frozen=True)
class ErrorSummary:
    """Errors over labeled nodes; NaN without any."""

    num_nodes: int  # pairs that count
    coverage: float  # share of the labeled nodes that were predicted
    gmae: float  # exp(mean(ln(max(|predicted / measured - 1|, 0.001))))
    mean_ape: float  # of |predicted / measured - 1|, as the next three
    median_ape: float
    p90_ape: float
    max_ape: float
    bias: float  # exp(mean(ln(predicted / measured))) - 1; negative: too short
    total_bias: float  # sum of predictions / sum of measurements - 1


def absolute_percentage_error(predicted_us: np.ndarray, measured_us: np.ndarray) -> np.ndarray:
    """|predicted / measured - 1|, [num_nodes]."""
    return np.abs(predicted_us / measured_us - 1.0)


def gmae(predicted_us: np.ndarray, measured_us: np.ndarray) -> float:
    """Geometric mean of the absolute percentage error [num_nodes], floored at APE_FLOOR; NaN without nodes."""
    if not len(measured_us):
        return float("nan")
    ape = absolute_percentage_error(predicted_us, measured_us)  # [num_nodes]
    return float(np.exp(np.log(np.maximum(ape, APE_FLOOR)).mean()))


def summarize(predicted_us: np.ndarray, measured_us: np.ndarray) -> ErrorSummary:
    """All metrics over nodes with a measurement; arrays are [num_nodes].

    A prediction that is NaN counts against coverage only, a measurement that is NaN or 0 does not count.
    """
    labeled = is_measured(measured_us)  # [num_nodes]
    covered = labeled & np.isfinite(predicted_us)  # [num_nodes]
    p, m = predicted_us[covered], measured_us[covered]  # [num covered]
    coverage = float(covered.sum() / labeled.sum()) if labeled.any() else float("nan")
    if not len(m):
        return ErrorSummary(0, coverage, *[float("nan")] * 7)
    ape = absolute_percentage_error(p, m)
    bias = np.exp(np.log(np.maximum(p, APE_FLOOR * m) / m).mean()) - 1.0  # a prediction of 0 must not be log 0
    return ErrorSummary(
        num_nodes=len(m), coverage=coverage, gmae=gmae(p, m), mean_ape=float(ape.mean()),
        median_ape=float(np.median(ape)), p90_ape=float(np.quantile(ape, 0.9)), max_ape=float(ape.max()),
        bias=float(bias), total_bias=float(p.sum() / m.sum() - 1.0),
    )  # fmt: skip


def gmae_interval(predicted_us: np.ndarray, measured_us: np.ndarray, runs: np.ndarray) -> tuple[float, float]:
    """95 % bootstrap of the GMAE (Efron 1979), runs (names or numbers) drawn with replacement; NaN with fewer than two.

    Arrays are [num_nodes]; latencies that are NaN do not count, measured ones of 0 neither.
    """
    use = is_measured(measured_us) & np.isfinite(predicted_us)  # [num_nodes]
    run, names = pd.factorize(runs[use], sort=True)  # [num used], [num_runs]
    if len(names) < 2:
        return float("nan"), float("nan")
    logs = np.log(np.maximum(absolute_percentage_error(predicted_us[use], measured_us[use]), APE_FLOOR))
    total, count = np.bincount(run, logs), np.bincount(run)  # [num_runs]
    draws = np.random.default_rng(0).integers(0, len(names), size=(NUM_DRAWS, len(names)))  # [NUM_DRAWS, num_runs]
    means = np.exp(total[draws].sum(1) / count[draws].sum(1))  # [NUM_DRAWS]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def compare(
    estimates: Mapping[str, np.ndarray], measured_us: np.ndarray, node_types: np.ndarray, runs: np.ndarray
) -> pd.DataFrame:
    """One row per node type ("all" first) and predictor (name -> [num_nodes] latency, NaN where there is none).

    [num_nodes] `measured_us` is NaN where unknown, `node_types` are NodeType values, `runs` names for the bootstrap.
    Columns node_type, predictor, the fields of ErrorSummary, gmae_low, gmae_high (95 % over runs).
    """
    labeled = is_measured(measured_us)
    groups = [ALL, *sorted(set(node_types[labeled].tolist()))]
    rows = [
        _row(group, name, estimate[use], measured_us[use], runs[use])
        for group in groups
        for use in [labeled & ((node_types == group) | (group == ALL))]
        for name, estimate in estimates.items()
    ]
    return pd.DataFrame(rows)


def _row(group: str, name: str, predicted: np.ndarray, measured: np.ndarray, runs: np.ndarray) -> dict[str, object]:
    low, high = gmae_interval(predicted, measured, runs)
    summary = asdict(summarize(predicted, measured))
    return {"node_type": group, "predictor": name, **summary, "gmae_low": low, "gmae_high": high}
