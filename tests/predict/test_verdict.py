"""Which model the validation runs favor, on errors made by hand."""

import math

import pandas as pd
import pytest

from gnnperf.gnn import StepMiss
from gnnperf.predict.training import Use, Verdict, step_errors, verdict_of


def errors(network: list[float], analytic: list[float], repeats: int = 1) -> pd.DataFrame:
    rows = [(f"run{i}", n, a) for i, (n, a) in enumerate(zip(network, analytic, strict=True)) for _ in range(repeats)]
    return pd.DataFrame(rows, columns=["run", "network", "analytic"])


def test_errors_are_means_over_runs_of_means_over_their_recordings() -> None:
    table = pd.concat([errors([0.1], [0.3], repeats=3), errors([0.2, 0.4], [0.3, 0.5]).iloc[1:]])
    verdict = verdict_of(table, num_train_runs=7)
    assert (verdict.network, verdict.analytic) == pytest.approx((0.25, 0.4))
    assert (verdict.num_train_runs, verdict.num_val_runs) == (7, 2)


@pytest.mark.parametrize(
    ("network", "analytic", "use"),
    [
        ([0.05] * 6, [0.10] * 6, Use.NETWORK),
        ([0.20] * 6, [0.10] * 6, Use.ANALYTIC),
        ([0.05] * 5, [0.10] * 5, Use.UNDECIDED),  # five runs may agree by chance
        ([0.05, 0.15] * 3, [0.10] * 6, Use.UNDECIDED),
        ([0.10] * 6, [0.10] * 6, Use.UNDECIDED),
    ],
)
def test_a_model_is_favored_where_six_runs_agree(network: list[float], analytic: list[float], use: Use) -> None:
    assert verdict_of(errors(network, analytic), 20).use is use


def test_sentences_hold_the_counts_both_errors_and_the_interval() -> None:
    verdict = Verdict(12, 6, 0.081, 0.09, (-0.03, 0.012))
    assert verdict.evidence == (
        "Step error of 6 validation runs after 12 training runs: 8.1 % with the network, 9.0 % with the analytical "
        "model, difference -0.9 points (95 % interval -3.0 points to +1.2 points)."
    )
    assert verdict.advice == (
        "Too little data to decide: use the analytical model until more validation runs favor the network."
    )
    one = Verdict(1, 1, 0.1, 0.2, (math.nan, math.nan))
    assert "1 validation run after 1 training run:" in one.evidence and "no interval" in one.evidence
    assert "at least 6 validation runs" in one.advice


def test_log_errors_become_shares_of_the_measured_step() -> None:
    network = [StepMiss("a", math.log(100 / 120), {}, {})]  # predicted 120 us, measured 100 us
    analytic = [StepMiss("a", math.log(100 / 50), {}, {})]
    table = step_errors(network, analytic)
    assert table[["network", "analytic"]].to_numpy()[0] == pytest.approx([0.2, 0.5])
