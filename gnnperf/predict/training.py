"""Training, as train.py and `gnnperf train` do it: data -> network -> fit -> checkpoint -> errors -> which to use."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gnnperf.core import Mapped, counted, in_copies, in_turn, usable_cores
from gnnperf.gnn import StepMiss
from gnnperf.predict.composition.entry import EntryConfig

# Which model to use after a training: the network or the analytical model, by their steps of the validation runs.
# The best epoch and the shrinkage of corrections were chosen on these runs, so the network's error is the lower end of
# what to expect.

LEVEL = 0.95
NUM_DRAWS = 2000
MIN_RUNS = 6  # with fewer runs, all of them may favor one model by chance more often than 1 - LEVEL: 2 / 2^runs


class Use(StrEnum):
    """Which model the validation runs favor."""

    NETWORK = "network"
    ANALYTIC = "analytic"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Verdict:
    """Step errors of both models, |predicted / measured - 1|, as means over validation runs."""

    num_train_runs: int  # runs that were trained on
    num_val_runs: int  # runs that were validated on
    network: float  # error of the network
    analytic: float  # error of the analytical model, fitted on the training runs
    difference_interval: tuple[float, float]  # 95 % interval over runs of network - analytic; NaN with one run

    @property
    def use(self) -> Use:
        """Undecided with fewer than MIN_RUNS validation runs, and where the interval contains 0."""
        low, high = self.difference_interval
        if self.num_val_runs < MIN_RUNS or not (high < 0 or low > 0):
            return Use.UNDECIDED
        return Use.NETWORK if high < 0 else Use.ANALYTIC

    @property
    def evidence(self) -> str:
        """Both errors and what they are of, in one sentence."""
        low, high = self.difference_interval
        interval = (
            "no interval" if np.isnan(low) else f"{_percent(LEVEL, 0)} interval {_points(low)} to {_points(high)}"
        )
        return (
            f"Step error of {_runs(self.num_val_runs, 'validation')} after {_runs(self.num_train_runs, 'training')}: "
            f"{_percent(self.network)} with the network, {_percent(self.analytic)} with the analytical model, "
            f"difference {_points(self.network - self.analytic)} ({interval})."
        )

    @property
    def advice(self) -> str:
        """What to use, in one sentence."""
        if self.use is Use.NETWORK:
            return "Use the network: its steps are closer on the validation runs."
        if self.use is Use.ANALYTIC:
            return "Use the analytical model: its steps are closer on the validation runs."
        more = f"at least {MIN_RUNS} validation runs" if self.num_val_runs < MIN_RUNS else "more validation runs"
        return f"Too little data to decide: use the analytical model until {more} favor the network."


def verdict_of(errors: pd.DataFrame, num_train_runs: int) -> Verdict:
    """Compare two models on the same steps; a row of errors per recording: run, network and analytic."""
    of_run = errors.groupby("run", sort=True)[["network", "analytic"]].mean()  # [num_runs, 2]
    network, analytic = of_run.mean()
    interval = _interval((of_run["network"] - of_run["analytic"]).to_numpy())
    return Verdict(num_train_runs, len(of_run), float(network), float(analytic), interval)


def step_errors(network: Sequence[StepMiss], analytic: Sequence[StepMiss]) -> pd.DataFrame:
    """Columns run, network and analytic from what both models missed of the same recordings."""
    errors = [np.abs(np.exp([-miss.log_error for miss in misses]) - 1) for misses in (network, analytic)]
    return pd.DataFrame({"run": [miss.run for miss in network], "network": errors[0], "analytic": errors[1]})


def _interval(difference: np.ndarray) -> tuple[float, float]:
    """Percentile bootstrap of the mean over runs [num_runs]; NaN with one run."""
    if len(difference) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(0).integers(0, len(difference), size=(NUM_DRAWS, len(difference)))
    low, high = np.quantile(difference[draws].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _runs(count: int, kind: str) -> str:
    return f"{count} {kind} run{'' if count == 1 else 's'}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _points(share: float) -> str:
    return f"{100 * share:+.1f} points"


if TYPE_CHECKING:
    from rich.console import Console

    from gnnperf.gnn import Checkpoint, Judged, PreparedData, TypedGNN

Evaluation = Callable[..., Any]  # (config, data, model, checkpoint, fit_s, log): adds tables and files of its own


@dataclass(frozen=True)
class Trained:
    """The result of a training."""

    checkpoint: "Checkpoint"  # as it was saved
    path: Path  # its file
    data: "PreparedData"  # that it was trained and judged on
    tables: dict[str, pd.DataFrame]  # part of the split -> node errors of every prediction (evaluate)
    verdict: Verdict  # the network against the analytical model


def train(config: EntryConfig, onto: "Console", evaluations: Sequence[Evaluation] = ()) -> Trained | None:
    """Write checkpoint.pt, errors.csv, curves, tables and figures; print the errors on held-out runs.

    Each process of torchrun calls this. `evaluations` are what else is done with the trained network. None in all but
    the first of several processes. Raises InputError: data, split or start that cannot be used.
    """
    # torch is imported after the configuration is known to be right: a typing error is reported at once
    import torch

    from gnnperf import gnn

    out = Path(config.out)
    # Copies of this process, which use no GPU, read recordings. `build_model` sets the threads of the training.
    torch.set_num_threads(1)
    start = gnn.load_start(Path(config.init_from), config.model) if config.init_from else None
    reads = partial(in_copies, most=usable_cores() // gnn.processes().count_here)
    earlier = start.earlier if start else None
    data = gnn.load_data(config.data, config.device_spec(), config.cluster_spec(), earlier, reads)
    onto.print(", ".join(f"{part}: {counted(len(steps), 'step')}" for part, steps in data.steps.items()))
    for other, machine_scales in data.machine_scales.items():
        onto.print(f"{other}: {machine_scales}")

    def fresh() -> "TypedGNN":
        made = gnn.build_model(config, data)
        return gnn.begin_from(made, start) if start else made

    begin = time.perf_counter()
    with gnn.leaving_programs_out(config, data, fresh) as judged, gnn.open_log(config) as log:
        model = gnn.fit(config, data, fresh(), log)
        left_out = judged()
        if not gnn.processes().is_first:
            return None

        mapped = in_copies if gnn.may_copy(config) else in_turn
        shrinkage = gnn.keep_what_helps(model, data, mapped)
        left_out = [gnn.shrunk(one, shrinkage) for one in left_out]
        unseen = gnn.unseen_shares(left_out, mapped)
        for of_whom, of_each in (("", shrinkage), (" in other programs", unseen)):
            for kind, shares in of_each.items():
                onto.print(f"{kind}{of_whom}: {shares}")

        fit_s = time.perf_counter() - begin
        cards = gnn.cards_of(Path(config.data.path).expanduser())
        calibrated_on = gnn.processors_of(cards / name for name in data.split.val)
        training = {"seed": config.seed, "optim": asdict(config.optim), "trainer": asdict(config.trainer),
                    "init_from": start.sha256 if start else None,
                    "processors": list(map(asdict, calibrated_on))}  # fmt: skip
        checkpoint, errors = _calibrated(gnn.make_checkpoint(model, config.model, data, training, unseen), model, data,
                                         left_out, mapped)  # fmt: skip
        checkpoint = gnn.save_checkpoint(out / "checkpoint.pt", checkpoint)

        tables = gnn.evaluate(model, data, config.evaluate_on, mapped)
        gnn.write_comparison(tables, out / "errors.csv")
        gnn.log_outputs(log, model, data.steps["val"], tables, out / "checkpoint.pt", checkpoint.sha256,
                        mapped)  # fmt: skip
        for part, table in tables.items():
            gnn.print_comparison(part, table, onto)
        for evaluation in evaluations:
            evaluation(config, data, model, checkpoint, fit_s, log)
    verdict = verdict_of(errors, len({step.run for step in data.steps["train"]}))
    for text in (verdict.evidence, verdict.advice, f"{out / 'checkpoint.pt'}  sha256 {checkpoint.sha256}"):
        onto.print(text, soft_wrap=True)
    return Trained(checkpoint, out / "checkpoint.pt", data, tables, verdict)


def _calibrated(
    checkpoint: "Checkpoint", model: "TypedGNN", data: "PreparedData", left_out: "Sequence[Judged]", mapped: Mapped
) -> "tuple[Checkpoint, pd.DataFrame]":
    """The checkpoint with intervals, and the step errors of the validation recordings.

    Corrections of measurements of another machine have no calibrated intervals.
    """
    from gnnperf.gnn import contended_step_time_us, isolated_prediction, run_of
    from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
    from gnnperf.predict.intervals import calibrated
    from gnnperf.predict.request import Mode

    if data.speed_factors is None:
        hybrid = BlendedPredictor(GnnPredictor(checkpoint))
        unseen = [(one.group, one.step, hybrid.predict_left_out(one)) for one in left_out]
        intervals, misses = calibrated(
            {Mode.hybrid: hybrid.predict_step, Mode.analytic: attrgetter("base")}, data.recordings, unseen, mapped
        )
        return replace(checkpoint, intervals=intervals), step_errors(misses[Mode.hybrid], misses[Mode.analytic])
    rows = []
    for step in data.recordings:
        network_us = contended_step_time_us(step, isolated_prediction(model, step).scheduled_us)
        analytic_us = contended_step_time_us(step, step.base.latency_us)
        off = [abs(predicted_us / step.step_us - 1) for predicted_us in (network_us, analytic_us)]
        rows.append({"run": run_of(step.run), "network": off[0], "analytic": off[1]})
    return checkpoint, pd.DataFrame(rows)
