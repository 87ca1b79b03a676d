"""Nodes of public traces, predicted from some measured nodes of the same trace: simple rows and trees in context.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.evidence_rows [--out DIR] [--share 0.2] [--seeds 0]

A share of the nodes of a trace's other steps is revealed (of a trace with one step, of this step). Every hidden node of
the judged step is predicted. Projects (repositories) are left out one at a time: the trees train on traces of the other
projects with a plain MIT, BSD or Apache license, with shares from none to half. The rule for stalls was changed
twice with figures of these traces in view; nothing else was chosen on them.

    hosts         error of the sum over host nodes
    steady hosts  the same without stalls: host work of 1 ms or more that takes ten times the median of its op
    unmodeled     sum of |error| over measured time, of kernels without a closed form

Revealed stalls are no evidence. Figures are means over a trace's steps and seeds, then over traces or projects.

    analytical     the base: closed forms, 1 us where there is none
    ratio          base x (sum of revealed / sum of their bases) by kind of node
    own-op means   mean of the finest group with a revealed node: op and shapes, op, family, kind, all
    shrunk ratios  base x a ratio per level, coarse to fine; each is shrunk to its parent as by one more node
    trees, blind   LightGBM on the network's features of a node; corrects the base
    trees          the same features and the evidence columns; corrects the shrunk ratios
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import WORK_TYPES, InputError, NodeType, each
from gnnperf.gnn import node_kinds
from gnnperf.gnn.data.cache import code_of
from gnnperf.gnn.data.floors import TypedFloors, base_us, texts_of
from gnnperf.gnn.data.numbers import WORK_NAMES, work_numbers
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.trace.public.catalog import Entry, load_catalog
from research.benchmarks._frame import parser_of, percent, right_aligned, run_main, show
from research.benchmarks._public_runs import Recording, imported, recordings

OUT = Path("outputs/evidence")
LEVELS = ("shapes", "op", "family", "kind", "all")  # fine to coarse
NO_FLOORS = TypedFloors({}, {}, 1.0)
SHARE, TRAIN_SHARES = 0.2, (0.0, 0.05, 0.2, 0.5)
MOST_STEPS, MOST_TRACES, MOST_NODES = 3, 6, 250  # judged per trace; of a project and of an episode that train
MOST_RATIO = 100.0  # of a label to the reference
STALL_US, STALL_RATIO, LEAST_OF_OP = 1000.0, 10.0, 3  # the first two as in docs/concepts/answers.md
FIGURES = ("hosts", "steady hosts", "unmodeled")
PLAIN_LICENSES = ("MIT", "BSD-3-Clause", "Apache-2.0")
TREES: Mapping[str, Any] = {
    "objective": "tweedie", "tweedie_variance_power": 1.5, "num_leaves": 31, "learning_rate": 0.1, "max_bin": 63,
    "min_child_samples": 50, "feature_fraction": 0.4, "lambda_l2": 1.0, "num_threads": 1, "deterministic": True,
    "force_col_wise": True, "verbosity": -1, "seed": 0,
}  # fmt: skip
NUM_TREES = 60
ROWS = ("analytical", "ratio", "own-op means", "shrunk ratios", "trees, blind", "trees")


@dataclass(frozen=True)
class Trace:
    """Measured nodes of one recording; all [n] or [n, ..].

    Attributes:
        name, project: of the recording and its repository.
        trains: whether its license lets it train.
        step: number of the step.
        numbers: [n, WORK_NAMES] float32, the network's features.
        groups: [n, LEVELS] int64 codes.
        base: closed form in us, 1 where there is none.
        measured: us, above 0.
        is_host, is_unmodeled: bool; kernels without a closed form.
    """

    name: str
    project: str
    trains: bool
    step: np.ndarray
    numbers: np.ndarray
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
            yield _trace(recording, nodes)


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
    columns = dict(zip(WORK_NAMES, work_numbers(graph, analytic, base, cluster).T, strict=True))
    table = pd.DataFrame({**columns, **{f"group_{level}": pd.factorize(v)[0] for level, v in names.items()},
                          "group_all": 0, "step": nodes["step"].to_numpy(), "base_us": base,
                          "measured_us": nodes["latency_us"].to_numpy(float),
                          "is_host": nodes["node_type"].eq(NodeType.HOST).to_numpy(),
                          "is_unmodeled": nodes["node_type"].eq(NodeType.COMPUTE).to_numpy() & np.isnan(analytic),
                          })  # fmt: skip
    is_work = nodes["node_type"].isin([t for t in WORK_TYPES if t != NodeType.COMM]).to_numpy()
    return table[is_work & (table["measured_us"] > 0) & (table["base_us"] > 0) & (table["step"] >= 0)]


def _trace(recording: Recording, nodes: pd.DataFrame) -> Trace:
    entry = recording.entries[0]
    groups = nodes[[f"group_{level}" for level in LEVELS]].to_numpy(np.int64)
    rest = (nodes[name].to_numpy() for name in ("base_us", "measured_us", "is_host", "is_unmodeled"))
    numbers = nodes[list(WORK_NAMES)].to_numpy(np.float32)
    return Trace(recording.name, entry.repo, _may_train(entry), nodes["step"].to_numpy(), numbers, groups, *rest)


def _may_train(entry: Entry) -> bool:
    """A plain license, of a file that was merged in its repository."""
    return entry.license.strip() in PLAIN_LICENSES


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


def evidence(trace: Trace, revealed: np.ndarray) -> np.ndarray:
    """[n, 3 LEVELS] per level: mean log(measured / base) of revealed nodes, log ratio of their sums, log(1 + number).

    A node's own measurement is not among its columns, because only hidden nodes are predicted. NaN without any.
    """
    log_ratio, columns = np.log(trace.measured / trace.base), []
    for level in range(len(LEVELS)):
        group = trace.groups[:, level]
        count, measured, expected = _sums(group, revealed, trace.measured, trace.base)
        logs = np.bincount(group[revealed], log_ratio[revealed], minlength=len(count))
        unknown = np.full(len(count), np.nan)
        mean = np.divide(logs, count, out=unknown.copy(), where=count > 0)
        sums = np.divide(measured, expected, out=unknown.copy(), where=count > 0)
        columns += [mean[group], np.log(sums)[group], np.log1p(count)[group]]
    return np.stack(columns, axis=1).astype(np.float32)


def _sums(group: np.ndarray, revealed: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[num_groups] each: number of revealed nodes, and the sums of both values over them."""
    size, own = int(group.max(initial=0)) + 1, group[revealed]
    first, second = (np.bincount(own, value[revealed], minlength=size) for value in values)
    return np.bincount(own, minlength=size).astype(float), first, second


# Trees that correct a reference.


def columns_of(trace: Trace, at: Episode, in_context: bool) -> tuple[np.ndarray, np.ndarray]:
    """[hidden, num_columns] features, and [hidden] the reference in us."""
    if not in_context:
        return trace.numbers[at.hidden], trace.base[at.hidden]
    reference = shrunk_us(trace, at.revealed)[at.hidden]
    parts = (trace.numbers[at.hidden], evidence(trace, at.revealed)[at.hidden], np.log(reference)[:, None])
    return np.concatenate(parts, axis=1), reference


def fit_trees(traces: Sequence[Trace], in_context: bool) -> Any:
    """Tweedie regression (power 1.5) in us, the reference as offset: unbiased for sums; projects count alike."""
    import lightgbm

    draw = np.random.default_rng(0)
    x, y, weight = [], [], []
    for trace in _that_train(traces):
        steps = np.unique(trace.step)
        for share in TRAIN_SHARES:
            at = episode(trace, int(draw.choice(steps)), share, draw)
            rows = draw.permutation(len(at.hidden))[:MOST_NODES]
            part = Episode(at.revealed, at.hidden[rows])
            features, reference = columns_of(trace, part, in_context)
            x.append(features)
            y.append(np.minimum(trace.measured[part.hidden] / reference, MOST_RATIO))
            size = np.sqrt(reference)
            weight.append(size / size.sum() / sum(one.project == trace.project for one in _that_train(traces)))
    weights = np.concatenate(weight)
    data = lightgbm.Dataset(np.concatenate(x), np.concatenate(y), weight=weights * len(weights) / weights.sum())
    return lightgbm.train(dict(TREES), data, NUM_TREES)


def _that_train(traces: Sequence[Trace]) -> list[Trace]:
    """At most MOST_TRACES of a project, in order of name."""
    result: dict[str, list[Trace]] = {}
    for trace in sorted(traces, key=lambda one: one.name):
        if trace.trains:
            result.setdefault(trace.project, []).append(trace)
    return [trace for own in result.values() for trace in own[:MOST_TRACES]]


def judged(traces: Sequence[Trace], share: float, seeds: Sequence[int]) -> pd.DataFrame:
    """One row per judged step, seed and predictor: project, trace, several (steps), row, FIGURES."""
    result = []
    fitted: dict[tuple[str, ...], dict[str, Any]] = {}  # projects that may not train share their models
    for project in each(sorted({trace.project for trace in traces}), "leaving projects out", "projects"):
        others = [trace for trace in traces if trace.project != project]
        key = tuple(trace.name for trace in _that_train(others))
        if key not in fitted:
            fitted[key] = {name: fit_trees(others, name == "trees") for name in ("trees, blind", "trees")}
        models = fitted[key]
        for trace in (one for one in traces if one.project == project):
            steps = np.unique(trace.step)
            for step in steps[-MOST_STEPS:]:
                for seed in seeds:
                    at = episode(trace, int(step), share, np.random.default_rng(seed))
                    for row, predicted in predictions(trace, at, models).items():
                        figures = errors(trace, at, predicted)
                        result.append({"project": project, "trace": trace.name, "several": len(steps) > 1,
                                       "step": int(step), "seed": seed, "row": row, **figures})  # fmt: skip
    return pd.DataFrame(result)


def predictions(trace: Trace, at: Episode, models: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Row -> [hidden] us."""
    whole = {"analytical": trace.base, "ratio": ratio_us(trace, at.revealed),
             "own-op means": own_op_us(trace, at.revealed), "shrunk ratios": shrunk_us(trace, at.revealed)}  # fmt: skip
    result = {row: values[at.hidden] for row, values in whole.items()}
    for name, model in models.items():
        features, reference = columns_of(trace, at, name == "trees")
        result[name] = reference * model.predict(features)
    return result


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
