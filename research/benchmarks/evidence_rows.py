"""Nodes of public traces, predicted from some measured nodes of the same trace by means and ratios.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.evidence_rows [--out DIR] [--share 0.2] [--seeds 0]

A share of the nodes of a trace's other steps is revealed (of a trace with one step, of this step). Every hidden node of
the judged step is predicted. Nothing is trained. The rule for stalls was changed twice with figures of these traces in
view; nothing else was chosen on them.

    hosts         error of the sum over host nodes
    steady hosts  the same without stalls: host work of 1 ms or more that takes ten times the median of its op
    unmodeled     sum of |error| over measured time, of kernels without a closed form

Revealed stalls are no evidence. Figures are means over a trace's steps and seeds, then over traces or projects.

    analytical     the base: closed forms, 1 us where there is none
    ratio          base x (sum of revealed / sum of their bases) by kind of node
    own-op means   mean of the finest group with a revealed node: op and shapes, op, family, kind, all
    shrunk ratios  base x a ratio per level, coarse to fine; each is shrunk to its parent as by one more node
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import WORK_TYPES, InputError, NodeType, each
from gnnperf.gnn import node_kinds
from gnnperf.gnn.data.cache import code_of
from gnnperf.gnn.data.floors import TypedFloors, base_us, texts_of
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._frame import parser_of, percent, right_aligned, run_main, show
from research.benchmarks._public_runs import Recording, imported, recordings

OUT = Path("outputs/evidence")
LEVELS = ("shapes", "op", "family", "kind", "all")  # fine to coarse
NO_FLOORS = TypedFloors({}, {}, 1.0)
SHARE, MOST_STEPS = 0.2, 3  # revealed; judged per trace
STALL_US, STALL_RATIO, LEAST_OF_OP = 1000.0, 10.0, 3  # the first two as in docs/concepts/predictors.md
FIGURES = ("hosts", "steady hosts", "unmodeled")
ROWS = ("analytical", "ratio", "own-op means", "shrunk ratios")


@dataclass(frozen=True)
class Trace:
    """Measured nodes of one recording; all [n] or [n, ..].

    Attributes:
        name, project: of the recording and its repository.
        step: number of the step.
        groups: [n, LEVELS] int64 codes.
        base: closed form in us, 1 where there is none.
        measured: us, above 0.
        is_host, is_unmodeled: bool; kernels without a closed form.
    """

    name: str
    project: str
    step: np.ndarray
    groups: np.ndarray
    base: np.ndarray
    measured: np.ndarray
    is_host: np.ndarray
    is_unmodeled: np.ndarray


@dataclass(frozen=True)
class Episode:
    """Attributes: revealed, hidden: rows of a trace; the hidden ones are predicted."""

    revealed: np.ndarray
    hidden: np.ndarray


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR")
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    requested = parser.parse_args(arguments)
    traces = list(load(requested.out))
    result = judged(traces, requested.share, requested.seeds)
    result.to_csv(requested.out / "rows.csv", index=False)
    for several in (True, False):
        for figure in FIGURES:
            rows = result[(result["several"] == several) & result[figure].notna()]
            title = "other steps" if several else "the same step (traces with one step)"
            show(_table(f"{figure}, {requested.share:.0%} of {title} revealed: error in %", rows, figure))


def _table(title: str, rows: pd.DataFrame, figure: str) -> Any:
    shown = right_aligned(title, "traces", *ROWS)
    by_project = rows.pivot_table(figure, ["project", "trace"], "row").groupby("project").mean()
    for project, values in by_project.iterrows():
        count = rows[rows["project"] == project]["trace"].nunique()
        shown.add_row(str(project), str(count), *(percent(values[row]) for row in ROWS))
    by_trace = rows.groupby(["row", "trace"])[figure].mean().groupby("row")
    means = {"mean of projects": by_project.mean(), "mean of traces": by_trace.mean(),
             "median of traces": by_trace.median()}  # fmt: skip
    for name, values in means.items():
        shown.add_row(name, str(rows["trace"].nunique()), *(percent(values[row]) for row in ROWS))
    return shown


# Public traces as tables of nodes.


def load(folder: Path) -> Iterator[Trace]:
    """Public recordings with device work; kept in the folder by the code that makes them."""
    chosen = [entry for entry in load_catalog() if entry.run and entry.kind in ("kineto", "archive")]
    keep = folder / code_of("core", "trace", "graph", "analytic", "hardware", "gnn/data")
    keep.mkdir(parents=True, exist_ok=True)
    for recording in each(recordings(chosen), "reading traces", "traces"):
        path = keep / f"{recording.name}.parquet"
        if not path.is_file():
            _nodes(recording).to_parquet(path)
        nodes = pd.read_parquet(path)
        if len(nodes):
            rest = (nodes[name].to_numpy() for name in ("base_us", "measured_us", "is_host", "is_unmodeled"))
            groups = nodes[[f"group_{level}" for level in LEVELS]].to_numpy(np.int64)
            yield Trace(recording.name, recording.entries[0].repo, nodes["step"].to_numpy(), groups, *rest)


def _nodes(recording: Recording) -> pd.DataFrame:
    """Measured nodes of work; none of a recording that cannot be used."""
    try:
        graph = imported(recording)[1].for_predictors()
        if not graph.runs_on_gpu or not graph.steps:
            return pd.DataFrame()
        cluster = cluster_for(graph, None, None)
        analytic = AnalyticPredictor().predict(graph, cluster).latency_us
    except (InputError, OSError) as error:
        print(f"left out: {recording.name}: {getattr(error, 'what', error)}", file=sys.stderr)
        return pd.DataFrame()
    nodes = graph.nodes
    base = base_us(nodes, analytic, NO_FLOORS)
    kind, op, family, dims = node_kinds(nodes), *(texts_of(nodes[c]) for c in ("op_name", "family", "input_dims"))
    names = {"kind": kind, "family": kind + " " + family, "op": kind + " " + op, "shapes": kind + " " + op + " " + dims}
    table = pd.DataFrame({**{f"group_{level}": pd.factorize(v)[0] for level, v in names.items()},
                          "group_all": 0, "step": nodes["step"].to_numpy(), "base_us": base,
                          "measured_us": nodes["latency_us"].to_numpy(float),
                          "is_host": nodes["node_type"].eq(NodeType.HOST).to_numpy(),
                          "is_unmodeled": nodes["node_type"].eq(NodeType.COMPUTE).to_numpy() & np.isnan(analytic),
                          })  # fmt: skip
    is_work = nodes["node_type"].isin([t for t in WORK_TYPES if t != NodeType.COMM]).to_numpy()
    return table[is_work & (table["measured_us"] > 0) & (table["base_us"] > 0) & (table["step"] >= 0)]


# What is revealed, and what it says of the hidden nodes.


def episode(trace: Trace, step: int, share: float, draw: np.random.Generator) -> Episode:
    """A share of the nodes of the other steps is revealed, and the step is hidden; of one step, the rest of it."""
    inside = trace.step == step
    pool = np.flatnonzero(~inside) if (~inside).any() else np.flatnonzero(inside)
    revealed = pool[draw.random(len(pool)) < share]
    hidden = np.flatnonzero(inside)
    steady = revealed[~stalls(trace, revealed)[revealed]]
    return Episode(steady, hidden if (~inside).any() else np.setdiff1d(hidden, revealed))


def stalls(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """[n] bool: host work of 1 ms or more that takes ten times the median of its op among these rows.

    The median of an op with fewer than LEAST_OF_OP such rows is that of its family, kind or trace.
    """
    usual_us = np.full(len(trace.step), np.inf)
    for level in reversed(range(LEVELS.index("op"), len(LEVELS))):
        group = trace.groups[:, level]
        known = pd.Series(trace.measured[rows]).groupby(group[rows]).agg(["median", "size"])
        median = known["median"].where(known["size"] >= LEAST_OF_OP)
        own = median.reindex(np.arange(int(group.max(initial=0)) + 1)).to_numpy()[group]  # [n]
        usual_us = np.where(np.isnan(own), usual_us, own)
    return trace.is_host & (trace.measured >= np.maximum(STALL_US, STALL_RATIO * usual_us))


def shrunk_us(trace: Trace, revealed: np.ndarray) -> np.ndarray:
    """[n] us: the base times a ratio per level, coarse to fine."""
    predicted = trace.base.copy()
    for level in reversed(range(len(LEVELS))):
        group = trace.groups[:, level]
        count, measured, expected = _sums(group, revealed, trace.measured, predicted)
        one = np.divide(expected, count, out=np.zeros(len(count)), where=count > 0)  # one more node at the parent's
        ratio = np.divide(measured + one, expected + one, out=np.ones(len(count)), where=count > 0)
        predicted = predicted * ratio[group]
    return predicted


def own_op_us(trace: Trace, revealed: np.ndarray) -> np.ndarray:
    """[n] us: the mean of the finest group with a revealed node; without any, the base."""
    predicted = trace.base.copy()
    for level in reversed(range(len(LEVELS))):
        group = trace.groups[:, level]
        count, measured, _ = _sums(group, revealed, trace.measured, trace.base)
        mean = np.divide(measured, count, out=np.full(len(count), np.nan), where=count > 0)[group]
        predicted = np.where(np.isnan(mean), predicted, mean)
    return predicted


def ratio_us(trace: Trace, revealed: np.ndarray) -> np.ndarray:
    """[n] us: the base times the ratio of the node's kind; 1 without a revealed node."""
    group = trace.groups[:, LEVELS.index("kind")]
    count, measured, expected = _sums(group, revealed, trace.measured, trace.base)
    ratio = np.divide(measured, expected, out=np.ones(len(count)), where=count > 0)
    return np.asarray(trace.base * ratio[group])


def _sums(group: np.ndarray, revealed: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[num_groups] each: number of revealed nodes, and the sums of both values over them."""
    size, own = int(group.max(initial=0)) + 1, group[revealed]
    first, second = (np.bincount(own, value[revealed], minlength=size) for value in values)
    return np.bincount(own, minlength=size).astype(float), first, second


def judged(traces: Sequence[Trace], share: float, seeds: Sequence[int]) -> pd.DataFrame:
    """One row per judged step, seed and predictor: project, trace, several (steps), row, FIGURES."""
    result = []
    for trace in traces:
        steps = np.unique(trace.step)
        for step, seed in product(steps[-MOST_STEPS:], seeds):
            at = episode(trace, int(step), share, np.random.default_rng(seed))
            predicted = (trace.base, ratio_us(trace, at.revealed), own_op_us(trace, at.revealed),
                         shrunk_us(trace, at.revealed))  # fmt: skip
            result += [{"project": trace.project, "trace": trace.name, "several": len(steps) > 1, "step": int(step),
                        "seed": seed, "row": row, **errors(trace, at, us[at.hidden])}
                       for row, us in zip(ROWS, predicted, strict=True)]  # fmt: skip
    return pd.DataFrame(result)


def errors(trace: Trace, at: Episode, predicted: np.ndarray) -> dict[str, float]:
    """FIGURES of the hidden nodes; NaN without any."""
    measured, host, kernel = trace.measured[at.hidden], trace.is_host[at.hidden], trace.is_unmodeled[at.hidden]
    steady = host & ~stalls(trace, np.arange(len(trace.step)))[at.hidden]
    sums = [(predicted[rows].sum(), measured[rows].sum()) for rows in (host, steady)]
    result = [abs(one / other - 1) if other > 0 else np.nan for one, other in sums]
    off = np.abs(predicted - measured)[kernel].sum() / measured[kernel].sum() if kernel.any() else np.nan
    return dict(zip(FIGURES, map(float, (*result, off)), strict=True))


if __name__ == "__main__":
    run_main(main)
