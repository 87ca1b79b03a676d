"""The hybrid: is it as good as the better of network and analytical model, and does it know what it does not know?

    python -m research.benchmarks.hybrid [--out DIR]      trains one network (some minutes) unless DIR has it

(a) errors of network, analytical model and hybrid on programs of training, on op families and on a dtype that training
lacks; the gate's numbers were chosen on the thresholds, the rest is test (research/benchmarks/_hybrid_split.py). (b)
what tells
nodes unlike training from nodes like it, with the name test switched off. (c) a trace of ops that nothing has seen.
Latencies are of isolated ops. Figures go to DIR/*.html.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.network import Network
from research.benchmarks._cached_networks import cached_network
from research.benchmarks._console_tables import right_aligned
from research.benchmarks._hybrid_answers import errors, node_table
from research.benchmarks._hybrid_energy import Energy, fit_energy
from research.benchmarks._hybrid_plots import coverage_figure, reliability_figure, score_figure, write_figures
from research.benchmarks._hybrid_scores import SCORES, error_coverage, false_positives, grown, pooled, renamed
from research.benchmarks._hybrid_split import DTYPE, FAMILY, OTHER_DTYPE, SEEN, THRESHOLDS, hybrid_split, load, of_group
from research.benchmarks._hybrid_unknown import print_strange
from research.benchmarks._learned_rows import experiment

OUT, EPOCHS = Path("outputs/hybrid"), 40
GROUPS = (THRESHOLDS, OTHER_DTYPE, SEEN, FAMILY, DTYPE)
JUDGED = (SEEN, FAMILY, DTYPE)
BFLOAT16 = "bfloat16"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, write the figures; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.hybrid", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR")
    out = parser.parse_args(arguments).out
    torch.set_num_threads(1)
    try:
        data = load()
        checkpoint = cached_network(out, _network(), hybrid_split(), 0, lambda: data)
        report(data, BlendedPredictor(GnnPredictor(checkpoint)), out)
    except InputError as error:
        print(f"hybrid: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _network() -> Network:
    """The row gnn, in fewer epochs: the runs are fewer, too."""
    result = experiment("gnn")
    return replace(result, config=replace(result.config, trainer=replace(result.config.trainer, max_epochs=EPOCHS)))


def report(data: PreparedData, predictor: BlendedPredictor, out: Path) -> None:
    """Everything that is printed and drawn."""
    console = Console(width=150)
    tables = {group: node_table(predictor, of_group(data, group)) for group in GROUPS}
    console.print(_errors_table(tables))
    energies = {
        "energy": fit_energy(predictor.network.network, data),
        "energy, bounded": fit_energy(predictor.network.network, data, of_group(data, THRESHOLDS)),
    }
    result = {group: pooled(predictor.network, energies, of_group(data, group)) for group in JUDGED}
    like, unlike = _kinds(data, predictor, energies, result)
    console.print(_detection_table(like, unlike))
    judged, scores, family = _judged(data, tables, result)
    log_error = np.abs(np.log((judged["gnn"] / judged["measured"]).to_numpy()))
    console.print(_area_table(scores, log_error))
    print_strange(predictor, of_group(data, SEEN)[0])
    device = data.steps["train"][0].cluster.device.name
    figures = {
        "error_coverage": coverage_figure(scores, log_error, SCORES),
        "reliability": reliability_figure(
            node_table(predictor, data.recordings), {g: tables[g] for g in JUDGED}, device
        ),
        "scores_by_family": score_figure(scores["all"], family),
    }
    for path in write_figures(figures, out):
        print(path)


def _errors_table(tables: dict[str, pd.DataFrame]) -> Table:
    names = ("nodes", "GMAE gnn %", "analytic %", "hybrid %", "hybrid / better", "gnn", "gnn_calibrated", "analytic")
    shown = right_aligned("(a) per-node error, and share of nodes by source", *names)
    for group, table in tables.items():
        parts = [
            ("all", table, False),
            ("all, by time", table, True),
            *((k, r, False) for k, r in table.groupby("node_type")),
        ]
        for kind, rows, by_time in parts:
            given = errors(rows, by_time)
            ratio = given["hybrid"] / min(given["gnn"], given["analytic"])
            shares = [f"{(rows['source'] == source).mean():.1%}" for source in names[5:]]
            shown.add_row(f"{group}: {kind}", str(len(rows)), *(f"{100 * v:.1f}" for v in given.values()),
                          f"{ratio:.3f}", *shares)  # fmt: skip
    return shown


def _kinds(
    data: PreparedData, predictor: BlendedPredictor, energies: dict[str, Energy], result: dict[str, pd.DataFrame]
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Scores of work like training, and by kind of those that are not."""
    seen, trained = of_group(data, SEEN), {str(f) for s in data.steps["train"] for f in s.nodes["family"].dropna()}
    like = result[SEEN].dropna()
    named = [replace(step, graph=renamed(step.graph)) for step in seen]
    larger = [(step, *grown(step)) for step in seen]
    sizes = pooled(predictor.network, energies, [replace(step, graph=graph) for step, graph, _ in larger])
    touched = np.concatenate([mask & graph.nodes["flops"].notna().to_numpy() for _, graph, mask in larger])
    new = pd.concat([s.nodes for s in of_group(data, FAMILY)], ignore_index=True)
    is_new = ((new["node_type"] == "compute") & ~new["family"].astype(str).isin(trained)).to_numpy()
    dtypes = pd.concat([s.nodes["dtype"].astype(object) for s in of_group(data, DTYPE)], ignore_index=True)
    unlike = {
        "renamed ops": pooled(predictor.network, energies, named).dropna(),
        "new shapes": sizes[touched].dropna(),
        "new dtype": result[DTYPE][(dtypes == BFLOAT16).to_numpy()].dropna(),
        "new families": result[FAMILY][is_new].dropna(),
    }
    return like, unlike


def _detection_table(like: pd.DataFrame, unlike: dict[str, pd.DataFrame]) -> Table:
    shown = right_aligned(
        "(b) false positives % at 95 % of seen nodes kept, names switched off", *unlike, "all kinds, mean"
    )
    for name in SCORES:
        rates = [100 * false_positives(like[name], table[name]) for table in unlike.values()]
        shown.add_row(name, *(f"{rate:.1f}" for rate in rates), f"{np.mean(rates):.1f}")
    shown.add_row("nodes", *(str(len(table)) for table in unlike.values()), "")
    return shown


def _judged(
    data: PreparedData, tables: dict[str, pd.DataFrame], result: dict[str, pd.DataFrame]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """Labeled test nodes with an answer, their scores and families."""
    nodes, scores = [], []
    for group in JUDGED:
        steps = of_group(data, group)
        first = dict(zip((s.run for s in steps), np.cumsum([0, *(len(s.nodes) for s in steps[:-1])]), strict=True))
        rows = tables[group][(tables[group]["gnn"] > 0) & tables[group]["measured"].notna()]
        nodes.append(rows)
        scores.append(result[group].iloc[(rows["run"].map(first) + rows["node"]).to_numpy()])
    judged = pd.concat(nodes, ignore_index=True)
    return judged, pd.concat(scores, ignore_index=True), judged["family"]


def _area_table(scores: pd.DataFrame, log_error: np.ndarray) -> Table:
    shown = right_aligned("(b) area under error-coverage of the network, mean |log error|", "area", "/ random")
    for name in SCORES:
        area = float(error_coverage(scores[name].to_numpy(), log_error)[1].mean())
        shown.add_row(name, f"{area:.4f}", f"{area / log_error.mean():.3f}")
    shown.add_row("random", f"{log_error.mean():.4f}", "1.000")
    return shown


if __name__ == "__main__":
    sys.exit(main())
