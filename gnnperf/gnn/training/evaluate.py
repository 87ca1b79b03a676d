"""A trained network next to the trivial predictions, on runs that training has not seen."""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from gnnperf.core import Mapped, console, copyable_cores, csv_text, in_turn, write_text
from gnnperf.gnn.data.prepare import PreparedData, Step, sampled
from gnnperf.gnn.data.runs import run_of
from gnnperf.gnn.data.step_time import IsolatedPrediction, in_place
from gnnperf.gnn.evaluation.metrics import ALL, compare
from gnnperf.gnn.evaluation.trivial import NearestRun, fit_nearest_run
from gnnperf.gnn.models.gnn import TypedGNN, outputs_of
from gnnperf.gnn.training.config import EVALUATED, TrainConfig


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0  # of this one, from 0
    count: int = 1  # on all machines
    count_here: int = 1  # on this machine

    @property
    def is_first(self) -> bool:
        """Whether this one writes files, prints and evaluates for all."""
        return self.rank == 0


def processes() -> Processes:
    """One, unless torchrun started this one."""
    rank, count, here = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if rank is None or count is None or here is None:
        return Processes()
    return Processes(int(rank), int(count), int(here))


def may_copy(config: TrainConfig) -> bool:
    """Whether copies of this process may compute: there is a core for them, and what they need works in a copy."""
    is_safe = config.trainer.threads == 1 and not torch.cuda.is_available()
    return is_safe and copyable_cores() > 1 and processes().count == 1


def evaluate(
    network: TypedGNN, data: PreparedData, parts: Sequence[str] = EVALUATED, mapped: Mapped = in_turn
) -> dict[str, pd.DataFrame]:
    """Part ("val", "test") -> comparison table; a part without runs is left out.

    Predictors: gnn; base (analytical, else typed floor), which the network corrects; analytic; one constant per op;
    a copy of the nearest training run. Of very large parts, evenly spaced runs count (prepare.sampled).
    """
    nearest = fit_nearest_run({step.run: step.nodes for step in sampled(data.steps["train"])})
    estimates = partial(_estimates, network, nearest)
    return {part: _compare(mapped(estimates, sampled(data.steps[part]), f"judging, {part}"))
            for part in parts if data.steps[part]}  # fmt: skip


def _compare(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    nodes = pd.concat(parts, ignore_index=True)
    estimates = {n: nodes[n].to_numpy() for n in ("gnn", "base", "analytic", "op median", "nearest run")}
    return compare(estimates, nodes["measured"].to_numpy(), nodes["node_type"].to_numpy(), nodes["run"].to_numpy())


def _estimates(network: TypedGNN, nearest: NearestRun, step: Step) -> pd.DataFrame:
    """One row per node: measured latency and every prediction."""
    return pd.DataFrame(
        {
            "gnn": predicted_us(network, step),
            "base": step.stored("base_us"),
            "analytic": step.stored("analytic_us"),
            "measured": step.stored("latency_us"),
            "op median": nearest.fallback.predict(step.nodes),
            "nearest run": nearest.predict(step.nodes),
            "node_type": step.nodes["node_type"].astype(str).to_numpy(),
            "run": run_of(step.run),
        }
    )


def predicted_us(network: TypedGNN, step: Step) -> np.ndarray:
    """[num_nodes] what a node usually takes, next to other work; NaN at device and link nodes."""
    return in_place(step, isolated_prediction(network, step))[0]


def isolated_prediction(network: TypedGNN, step: Step) -> IsolatedPrediction:
    """Predictions of the network for each node by itself; NaN at device and link nodes."""
    return IsolatedPrediction(*(step.stored("base_us") * np.exp(residuals_of(network, step))))


def residuals_of(network: TypedGNN, step: Step) -> np.ndarray:
    """[2, num_nodes] residuals of usual and of scheduled latencies; 0 at device and link nodes."""
    result = np.zeros((2, len(step.nodes)))
    for node_type, estimate in outputs_of(network.eval(), step.data).items():
        both = torch.stack([estimate.residual, estimate.scheduled_residual])  # [2, n]
        result[:, step.data[node_type].node_id.numpy()] = both.double().numpy()
    return result


def validation_gmae(tables: Mapping[str, pd.DataFrame]) -> float:
    """GMAE over all nodes of the validation runs: what a search over settings minimizes.

    Not the loss: two settings of the loss give values that cannot be compared.
    """
    val = tables["val"]
    result = val[(val["node_type"] == ALL) & (val["predictor"] == "gnn")]["gmae"]
    return float(result.to_numpy()[0])


def wide_console() -> Console:
    """A console on which the table fits, also where the output is a file; of several processes one is heard."""
    return console(width=max(console().width, 110), quiet=not processes().is_first)


def print_comparison(part: str, table: pd.DataFrame, onto: Console) -> None:
    """Print one part's table: percentages, GMAE with its 95 % interval over runs."""
    shown = Table(title=f"{part}: error of node latencies in %", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("node type", "predictor"):
        shown.add_column(name, no_wrap=True)
    for name in ("nodes", "covered", "GMAE", "95 %", "mean", "median", "p90", "max", "bias"):
        shown.add_column(name, justify="right", no_wrap=True)
    for node_type, rows in table.groupby("node_type", sort=False):
        for place, row in enumerate(rows.to_dict("records")):
            shown.add_row(str(node_type) if place == 0 else "", *_records(row), end_section=place == len(rows) - 1)
    onto.print(shown)


def _records(row: Mapping[Hashable, Any]) -> list[str]:
    interval = "-" if np.isnan(row["gmae_low"]) else f"{_percent(row['gmae_low'])}..{_percent(row['gmae_high'])}"
    errors = [_percent(row[name]) for name in ("mean_ape", "median_ape", "p90_ape", "max_ape", "bias")]
    shares = [_percent(row[name]) for name in ("coverage", "gmae")]
    return [row["predictor"], str(row["num_nodes"]), *shares, interval, *errors]


def write_comparison(tables: dict[str, pd.DataFrame], path: Path) -> None:
    """All parts as one CSV."""
    write_text(path, csv_text(pd.concat([t.assign(part=part) for part, t in tables.items()])))


def _percent(share: float) -> str:
    if np.isnan(share):
        return "-"
    return f"{100 * share:.1f}" if abs(share) < 100 else f"{100 * share:.0e}"
