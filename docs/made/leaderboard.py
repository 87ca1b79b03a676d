"""The page of the saved leaderboard: `python -m docs.made.leaderboard` writes docs/benchmarks/leaderboard.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from docs.made.pages import DOCS, ROOT

FILE, PAGE = (ROOT / DOCS / "benchmarks" / f"leaderboard.{suffix}" for suffix in ("json", "md"))
HEAD = """# Leaderboard

One row per model, with the fixed metrics of `gnnperf.datasets.Evaluator`: recorded CPU runs (`{data}`, axis `{axis}`),
{train} graphs to train on, {val} to validate and {test} to test. The least time-weighted error of nodes is that of
{best_nodes}, the least mean error of steps that of {best_steps}. Whole-step models predict no nodes.
With more graphs to train on, the network has the least node error on at least six of seven splits
([tables](network.md#the-learned-predictor-and-simpler-learners)).

    python -m research.benchmarks.leaderboard --save && python -m docs.made.leaderboard

Measured on {date} at commit `{commit}`; learned rows are means over {seeds} seeds (the example: one). Errors are in %;
the best value of a column is bold. {test} steps are few: differences of some points are noise. *Signed* errors are
negative where times are too short. *In interval* should be 90 %: intervals are quantiles of measured / predicted on the
validation part, per node type. *Width* is the median of highest / lowest.
"""
TAIL = """
## Add a row

[`examples/evaluate.py`](../../examples/evaluate.py) evaluates a model in forty lines, and
[`examples/train_gnn.py`](../../examples/train_gnn.py) trains one in plain PyG. A row of this page is a learner in
`research/benchmarks/leaderboard.py`: it is fitted on the train and val parts, and never reads the test part.
[Use gnnperf from Python](../how-to/python.md#recorded-data-sets-in-pyg) has the calls.
"""
COLUMNS = {  # metric -> head, and whether it is an error in %
    "time_weighted_error": ("nodes, by time", True), "signed_error": ("signed", True), "gmae": ("GMAE", True),
    "coverage": ("in interval", True), "interval_ratio": ("width", False), "step_error": ("steps, mean", True),
    "step_error_median": ("median", True), "step_error_max": ("largest", True), "step_signed_error": ("signed", True),
}  # fmt: skip
RANKED = {"time_weighted_error", "gmae", "step_error", "step_error_median", "step_error_max"}  # the least is best


def page(given: Mapping[str, Any]) -> str:
    """The page of saved results: rows by their time-weighted error, those of whole steps last."""
    rows: dict[str, dict[str, float]] = given["rows"]
    best = {name: min(values[name] for values in rows.values() if name in values) for name in RANKED}
    order = sorted(rows, key=lambda name: (rows[name].get("time_weighted_error", math.inf), rows[name]["step_error"]))
    best_nodes, best_steps = (f"`{next(name for name, values in rows.items() if values.get(column) == best[column])}`"
                              for column in ("time_weighted_error", "step_error"))  # fmt: skip
    lines: list[Sequence[str]] = [("model", *(head for head, _ in COLUMNS.values())), ["---"] * (1 + len(COLUMNS))]
    for name in order:
        texts = []
        for column, (_, is_share) in COLUMNS.items():
            value = rows[name].get(column)
            sign = "+" if "signed" in column else ""
            text = "-" if value is None else f"{100 * value:{sign}.1f}" if is_share else f"{value:.2f}"
            texts.append(f"**{text}**" if column in RANKED and value == best[column] else text)
        lines.append((name, *texts))
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    head = HEAD.format(**given, **given["graphs"], best_nodes=best_nodes, best_steps=best_steps)
    return f"{head}\n{table}{TAIL}"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(FILE.read_text(encoding="utf-8"))), encoding="utf-8")
