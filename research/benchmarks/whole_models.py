"""Whole models that others measured: every row of NeuSight, next to what its authors and others predicted for it.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks whole_models [--checkpoint FILE] [--seen] [--classes]
    [--passes]

A list of operators becomes a graph (research.listed); a predictor and the schedule answer: the analytical model
with the constants that ship, the same with networks of op tables (`train.py experiment=pretrained`) as sizes only
would have them kept, or the network of a checkpoint next to them. Nothing is fitted on these rows. Peers are
NeuSight, roofline, Habitat and Li et al., as NeuSight's authors published their predictions; the floor is the measured
times of the nodes, summed.

--seen: only GPUs whose op tables constants and peers were fitted on; no label of another GPU is opened.
--classes: next to, kernels by class on the node tables: products, elementwise, softmax, layer norm.
--passes: instead, the measured share of the forward pass in a training step, by GPU; nothing is predicted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticPredictor
from gnnperf.gnn import summarize
from gnnperf.graph import Predictor
from gnnperf.predict import Mode
from gnnperf.predict.api import models_for
from research.benchmarks._public_runs import mirror
from research.benchmarks._whole_model_classes import class_table
from research.benchmarks._whole_models import Row, answer, rows
from research.pretraining.choice import by_sizes_only
from research.pretraining.op_checkpoint import TRAINED as CHECKPOINT
from research.pretraining.op_checkpoint import load_op_checkpoint
from research.pretraining.predictor import PretrainedPredictor
from research.tables.model_labels import PEERS, peer_us

ANALYTIC, BY_SIZES = "analytical", "by sizes alone"
NETWORK, FLOOR = "network", "nodes summed"
UNSEEN, TRAINED = "unseen GPUs", "GPUs of the op tables"


def predictors(checkpoint: Path | None) -> dict[str, Predictor]:
    """What answers, by its name in the tables."""
    result: dict[str, Predictor] = {ANALYTIC: AnalyticPredictor()}
    if CHECKPOINT.is_file():
        result[BY_SIZES] = PretrainedPredictor(by_sizes_only(load_op_checkpoint(CHECKPOINT)))
    if checkpoint is not None:
        result[NETWORK] = models_for(Mode.hybrid, checkpoint).model
    return result


def answered(requested: Sequence[Row], who: Mapping[str, Predictor], folder: Path) -> pd.DataFrame:
    """[num_rows] what was run, measured and predicted, us."""
    result = []
    for row in requested:
        label = row.label
        given = {name: answer(row, predictor) for name, predictor in who.items()}
        for name, each in given.items():
            if each.uncovered:
                print(f"{name} has no answer for {label.run.name}: {', '.join(each.uncovered)}", file=sys.stderr)
        result.append({
            "GPU": label.device, "run": label.run.name, "model": label.run.model, "variant": label.run.variant,
            "pass": "train" if label.run.training else "inference", "seen": row.seen, "measured": label.total_us,
            "forward": label.forward_us, "backward": label.backward_us,
            **{name: each.total_us for name, each in given.items()},
            **{f"{name} forward": each.forward_us for name, each in given.items()},
            **{name: peer_us(folder, label, peer) for peer, name in PEERS.items()},
            FLOOR: row.summed_nodes_us(folder),
        })  # fmt: skip
    return pd.DataFrame(result)


def print_rows(result: pd.DataFrame, who: Sequence[str]) -> None:
    """One line per row: measured ms, and everybody's error in percent."""
    printed = Table("GPU", "run", "measured ms", *who)
    for _, row in result.iterrows():
        errors = (100 * (row[name] / row["measured"] - 1) for name in who)
        printed.add_row(row["GPU"], row["run"], f"{row['measured'] / 1e3:.1f}", *map(_signed, errors))
    _show("Rows: error in percent of the measured time", printed)


def print_summary(title: str, groups: Iterable[tuple[str, pd.DataFrame]], who: Sequence[str]) -> None:
    """Errors of everybody over groups of rows; a row that someone has no answer for is missing in his line only."""
    printed = Table("rows of", "answer", "rows", "mean %", "median %", "p90 %", "max %", "bias %")
    for name, part in groups:
        for answer_name in who:
            errors = summarize(part[answer_name].to_numpy(float), part["measured"].to_numpy(float))
            if not errors.num_nodes:
                continue
            shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape)
            printed.add_row(name, answer_name, str(errors.num_nodes), *(f"{100 * x:.1f}" for x in shown),
                            f"{100 * errors.bias:+.1f}")  # fmt: skip
        printed.add_section()
    _show(title, printed)


def print_passes(requested: Sequence[Row]) -> None:
    """Measured forward time over forward and backward, row by row; a pass costs about half of its gradients."""
    printed = Table("GPU", "rows", "forward / (forward + backward), %")
    labels = [row.label for row in requested if row.label.run.training and not row.label.run.variant]
    for gpu in sorted({label.device for label in labels}):
        shares = sorted(100 * label.forward_us / label.total_us for label in labels if label.device == gpu)
        printed.add_row(gpu, str(len(shares)), " ".join(f"{share:.0f}" for share in shares))
    _show("Training rows: share of the forward pass, as measured", printed)


def _groups(by: Iterable[tuple[object, pd.DataFrame]]) -> list[tuple[str, pd.DataFrame]]:
    return [(" ".join(map(str, key)) if isinstance(key, tuple) else str(key), part) for key, part in by]


def _signed(percent: float) -> str:
    return "-" if np.isnan(percent) else f"{percent:+.1f}"


def _show(title: str, printed: Table) -> None:
    print(f"\n{title}\n")
    Console(width=170).print(printed)


def main(argv: Sequence[str]) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmarks whole_models", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--checkpoint", type=Path, help="a trained network, which answers beside the analytical model")
    parser.add_argument("--seen", action="store_true", help="only GPUs whose op tables constants were fitted on")
    parser.add_argument("--classes", action="store_true", help="kernels by class on the node tables, too")
    parser.add_argument("--passes", action="store_true", help="only measured shares of the forward pass")
    requested = parser.parse_args(argv)
    folder = mirror()
    chosen, left_out = rows(folder)
    if requested.passes:
        print_passes(chosen)
        return 0
    who = predictors(requested.checkpoint)
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} rows: {reason}")
    chosen = [row for row in chosen if row.seen or not requested.seen]
    if not chosen:
        sys.exit("no labels of sitar-lab/NeuSight: set GNNPERF_DATA_MIRROR to a folder that holds them")
    result = answered(chosen, who, folder)
    everybody = (*who, *PEERS.values(), FLOOR)
    print_rows(result, everybody)
    one = result[result["variant"] == ""]
    seen = one["seen"].map({True: TRAINED, False: UNSEEN})
    for title, keys in (("how the GPU was known", [seen]), ("GPU", ["GPU"]), ("model and pass", ["model", "pass"])):
        print_summary(f"One GPU, by {title}", _groups(one.groupby(keys)), everybody)
    if len(several := result[result["variant"] != ""]):
        groups = _groups(several.groupby(["variant"]))
        print_summary("Four GPUs, by how they share the work", groups, everybody)
    if requested.classes:
        _show("Kernels by class, summed over a model; measured between events of their own",
              class_table([row for row in chosen if not row.label.run.variant], who, folder))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
