"""The hybrid: is it as good as the better of network and analytical model?

    python -m research.benchmarks.hybrid [--out DIR]      trains one network (some minutes) unless DIR has it

(a) Errors of network, analytical model and hybrid on programs of training, on op families and on a dtype that training
lacks (research/benchmarks/_hybrid_split.py). (b) A trace of ops that training lacks. Latencies are of isolated ops. The
reliability of intervals goes to DIR/reliability.html.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
from research.benchmarks._hybrid_plots import reliability_figure
from research.benchmarks._hybrid_split import DTYPE, FAMILY, OTHER_DTYPE, SEEN, THRESHOLDS, hybrid_split, load, of_group
from research.benchmarks._hybrid_unknown import print_strange
from research.benchmarks._learned_rows import experiment

OUT, EPOCHS = Path("outputs/hybrid"), 40
GROUPS = (THRESHOLDS, OTHER_DTYPE, SEEN, FAMILY, DTYPE)
JUDGED = (SEEN, FAMILY, DTYPE)


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
    print_strange(predictor, of_group(data, SEEN)[0])
    device, path = data.steps["train"][0].cluster.device.name, out / "reliability.html"
    figure = reliability_figure(node_table(predictor, data.recordings), {g: tables[g] for g in JUDGED}, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path, include_plotlyjs=True)
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


if __name__ == "__main__":
    sys.exit(main())
