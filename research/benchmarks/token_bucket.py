"""Transfers and steps over links that a token bucket limits, given of the bucket and not.

    python -m research.benchmarks.token_bucket

Recordings that the split `run` of datasets/cpu-gloo trains or validates on; the analytical model with its default
constants, nothing fitted. The cards of these recordings do not say how large the bucket is; the recorder has always
made it as large as it says now (gnnperf.record.network.BUCKET_BYTES), and that is what is given here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, NodeType
from gnnperf.gnn.data.runs import RunStep, read_runs, typical
from gnnperf.gnn.data.splits import read_split
from gnnperf.gnn.evaluation.metrics import gmae
from gnnperf.record.network import BUCKET_BYTES
from gnnperf.schedule import NUM_UNROLLED, schedule_with_contention
from research.benchmarks._recorded_graphs import CACHE, DATASET

AXIS = "run"
FACTS = ["gbit", "kind", "ranks"]
ANSWERS = ("plain_us", "bucket_us")
COLUMNS = ("number", "runs", "measured us", *(f"{what}{of}" for what in ("ratio", "GMAE %", "by time %", "bias %")
                                              for of in ("", ", bucket")))  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 2 for bad input."""
    if arguments or (len(sys.argv) > 1 and arguments is None):
        print("token_bucket: takes no options", file=sys.stderr)
        return 2
    try:
        result = pd.concat([_answered(step) for step in _limited()], ignore_index=True)
    except InputError as error:
        print(f"token_bucket: {error}", file=sys.stderr)
        return error.exit_code
    steps, transfers = result[result["kind"] == "step"], result[result["kind"] != "step"]
    console = Console(width=180)
    console.print(_table("Transfers, every kind", transfers, FACTS))
    console.print(_table("Transfers", transfers, ["gbit"]))
    console.print(_table("Steps", steps, ["gbit"]))
    console.print(_table("Steps of all rates", steps, ["kind"]))
    return 0


def _limited() -> Iterator[RunStep]:
    """Typical steps of recordings over several hosts whose link has a limit."""
    split, read = read_split(DATASET, AXIS), read_runs(DATASET, CACHE, None, None)
    for name in (*split.train, *split.val):
        run = read(name)
        placement = run.graph.placement
        if placement is not None and placement.is_limited:
            yield typical(run)


def _answered(step: RunStep) -> pd.DataFrame:
    """One row per transfer with a label and one for the step: measured, and both answers as scheduled, in us."""
    nodes, inter = step.graph.nodes, replace(step.cluster.inter, bucket_bytes=float(BUCKET_BYTES))
    rows = ((nodes["node_type"] == NodeType.COLLECTIVE) & (nodes["latency_us"] > 0)).to_numpy()
    predicted_of = replace(step, cluster=replace(step.cluster, inter=inter))
    answers = [_scheduled_us(each, rows) for each in (step, predicted_of)]
    return pd.DataFrame({
        "run": step.run.partition("/")[0], "gbit": f"{inter.bandwidth_bytes_per_s * 8 / 1e9:g}",
        "kind": [*nodes["collective"][rows].astype(str), "step"], "ranks": str(len(step.graph.ranks)),
        "measured_us": [*nodes["latency_us"][rows], step.step_us], **dict(zip(ANSWERS, answers, strict=True)),
    })  # fmt: skip


def _scheduled_us(step: RunStep, rows: np.ndarray) -> np.ndarray:
    """[num_rows + 1] latencies of `rows` next to other work, and the step time of the kind that was measured."""
    given = AnalyticPredictor().predict(step.graph, step.cluster)
    assert given.isolated is not None, "the analytical model answers for ops alone"
    copies = NUM_UNROLLED if step.graph.steps[0].period_us is not None else 1
    result = schedule_with_contention(
        step.graph, np.nan_to_num(given.scheduled_us), given.lag_us, given.isolated, num_unrolled=copies
    )
    period_us = result.schedule.period_us
    return np.append(result.latency_us[rows], result.schedule.makespan_us if period_us is None else period_us)


def _table(title: str, result: pd.DataFrame, keys: list[str]) -> Table:
    table = Table(*keys, *COLUMNS, title=title, title_justify="left")
    for names, part in result.groupby(keys):
        measured = part["measured_us"].to_numpy(np.float64)
        answers = [part[name].to_numpy(np.float64) for name in ANSWERS]
        figures = (_ratio, _gmae, _by_time, _bias)
        table.add_row(*map(str, names), str(len(part)), str(part["run"].nunique()), f"{np.median(measured):.0f}",
                      *(figure(answer, measured) for figure in figures for answer in answers))  # fmt: skip
    return table


def _ratio(answer: np.ndarray, measured: np.ndarray) -> str:
    return f"{np.median(answer / measured):.2f}"


def _gmae(answer: np.ndarray, measured: np.ndarray) -> str:
    return f"{100 * gmae(answer, measured):.1f}"


def _by_time(answer: np.ndarray, measured: np.ndarray) -> str:
    return f"{100 * np.abs(answer - measured).sum() / measured.sum():.1f}"


def _bias(answer: np.ndarray, measured: np.ndarray) -> str:
    return f"{100 * (answer.sum() / measured.sum() - 1):.1f}"


if __name__ == "__main__":
    sys.exit(main())
