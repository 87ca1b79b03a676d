"""Parts of steps, by how much of the trace is known: host work, kernels without a closed form, steps without stalls.

    python -m research.benchmarks.trace_parts [--runs TEXT ...]

The steps of `trace_evidence`'s forecasts. Figures: the sum of host work, also without stalls; kernels without a closed
form (sum of |error| over measured time; without a prediction all of it); the step without stalls. A fifth: of the nodes
of the other steps, drawn DRAWS times; a host node takes the mean of the finest group of CLASSES with one, a kernel is
estimated by `alike_us`. Nothing is fitted but the constants of one row: hosts of the project do not count there.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticConstants, default_constants
from gnnperf.core import NodeType, Segment
from gnnperf.graph import ExecutionGraph
from gnnperf.predict import Request, predicted
from gnnperf.predict.request import Stalls, TraceEvidence
from gnnperf.schedule import MeasuredStep, align, forecast_step, measured_step
from research.benchmarks._frame import parser_of, run_main
from research.benchmarks.trace_evidence import LEAST_STEPS, blind_prediction, gpu_recordings
from research.fitting.gpu_constants import RUNS, fit_hosts, host_graphs

BLIND_ROW, LEFT_OUT_ROW = "none (blind)", "none, host constants without the project"
FIFTH, WHOLE = "a fifth of the other steps' nodes", "another step (`evidence=other_steps`)"
SHARE, DRAWS = 0.2, 5  # that is drawn, and how often
# Next to the type of node and the segment.
CLASSES: tuple[list[str], ...] = (["op_name", "input_dims", "event_name"], ["event_name"], ["op_name"], ["family"], [])
ALIKE = (["size"], ["family"], ["op_name"], ["event_name"], ["event_name", "size"], CLASSES[0])
LEAST_US, NOISES = 0.1, (0.01, 0.03, 0.1, 0.3, 1.0)  # of a kernel, in logarithms; relative to the variance of calls
FIGURES = ("hosts", "hosts without stalls", "kernels without closed form", "step without stalls")


def parts(run: str, graph: ExecutionGraph) -> list[dict[str, object]]:
    """Of every step that is forecast and every evidence: run, evidence and FIGURES, relative errors."""
    labels = [label for label in graph.steps if label.period_us is not None]
    if len(graph.steps) < LEAST_STEPS or len(labels) < 2:
        return []
    steps = [measured_step(graph, label) for label in graph.steps]
    steady = [one.without_stalls() for one in steps]
    fifths = [zip(class_means(steps, draw), class_means(steady, draw), strict=True) for draw in range(DRAWS)]
    rows: list[dict[str, object]] = []
    for label, own, calm, *drawn in zip(graph.steps, steps, steady, *fifths, strict=True):
        if label.period_us is None:
            continue
        blind, other = blind_prediction(graph, label.step), forecast_step(graph, label)
        left_out = blind_prediction(graph, label.step, constants_without(run.split("-")[0]))
        (blind_us, blind_step_us), (left_out_us, left_out_step_us) = (
            (np.full(own.graph.num_nodes, np.nan), math.nan) if one is None
            else (one.prediction.latency_us, one.step_time_us) for one in (blind, left_out))  # fmt: skip
        free_us, forecast_us = (
            predicted(graph, Request(step=label.step, evidence=given, stalls=Stalls.remove)).step_time_us
            for given in (TraceEvidence.trace, TraceEvidence.other_steps)
        )
        kind, segment = own.graph.nodes["node_type"], own.graph.nodes["segment"]
        hosts = ((kind == NodeType.HOST) & (segment != Segment.PEER_WAIT)).to_numpy()
        bare = (kind == NodeType.COMPUTE).to_numpy() & np.isnan(blind_us) & (blind is not None)
        for evidence, us, steady_us, time_us in (
            (BLIND_ROW, blind_us, blind_us, blind_step_us),
            (LEFT_OUT_ROW, left_out_us, left_out_us, left_out_step_us),
            *((FIFTH, *fifth_us, math.nan) for fifth_us in drawn),
            (WHOLE, _copied(own, other), _copied(own, other.without_stalls()), forecast_us),
        ):
            off_us, bare_us = np.abs(np.nan_to_num(us) - own.latency_us)[bare].sum(), own.latency_us[bare].sum()
            figures = (*(given[hosts].sum(where=~np.isnan(given[hosts])) / true.latency_us[hosts].sum() - 1
                         for given, true in ((us, own), (steady_us, calm))),
                       off_us / bare_us if bare_us else math.nan, time_us / free_us - 1)  # fmt: skip
            if blind is not None or evidence not in (BLIND_ROW, LEFT_OUT_ROW):
                rows.append({"run": run, "evidence": evidence, **dict(zip(FIGURES, figures, strict=True))})
    return rows


@cache
def constants_without(project: str) -> AnalyticConstants:
    """Constants whose hosts are fitted without the runs of a project; the shipped ones where there is none of it."""
    return (
        fit_hosts(host_graphs(project))
        if any(run.startswith(f"{project}/") for run in RUNS)
        else default_constants("gpu")
    )


def class_means(steps: Sequence[MeasuredStep], draw: int = 0) -> list[np.ndarray]:
    """Of each step [num_nodes] means over drawn nodes of the other steps; NaN where no class has one."""
    nodes = pd.concat([one.graph.nodes for one in steps], ignore_index=True)
    us, result = np.concatenate([one.latency_us for one in steps]), []
    place = np.repeat(np.arange(len(steps)), [one.graph.num_nodes for one in steps])
    drawn = (np.random.default_rng(draw).random(len(us)) < SHARE) & np.isfinite(us)
    kernel = (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    codes = [nodes.groupby(["node_type", "segment", *more], observed=True, dropna=False).ngroup().to_numpy()
             for more in CLASSES]  # fmt: skip
    for number in range(len(steps)):
        known, own = drawn & (place != number), place == number
        means_us = np.full(own.sum(), np.nan)
        for code in codes:
            sums, counts = (np.bincount(code[known], weight, code.max() + 1) for weight in (us[known], None))
            mean_us = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)[code[own]]
            means_us = np.where(np.isnan(means_us), mean_us, means_us)
        if (known & kernel).any():
            means_us[kernel[own]] = alike_us(nodes[kernel], us[kernel], known[kernel])[own[kernel]]
        result.append(means_us)
    return result


def alike_us(kernels: pd.DataFrame, us: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[num_kernels] us from those that are known [num_kernels]: a Gaussian process on logarithms.

    Two kernels covary by the share of the groups of ALIKE that have both. The size is the number of threads, in powers
    of two. Kernels that are alike in all are one call, and the noise of its mean is that of NOISES with which known
    calls, each predicted from the others, err least (Rasmussen, Williams 2006, sections 2.7 and 5.4.2).
    """
    edges = (kernels[column].astype(object).map(json.loads, na_action="ignore") for column in ("grid", "block"))
    blocks, threads = (each.map(math.prod, na_action="ignore").astype(float) for each in edges)
    kernels = kernels.assign(size=np.log2(blocks * threads).round())
    groups = [kernels.groupby(one, observed=True, dropna=False).ngroup().to_numpy() for one in ALIKE]
    calls, call = np.unique(np.stack(groups, axis=1), axis=0, return_inverse=True)
    counts = np.bincount(call[known], minlength=len(calls))
    seen = np.flatnonzero(counts)
    log_us = np.bincount(call[known], np.log(np.maximum(us[known], LEAST_US)), len(calls))[seen] / counts[seen]
    alike = (calls[:, None] == calls[seen]).mean(axis=2)  # [num_calls, num_seen]
    fits = []
    for noise in NOISES:
        precision = np.linalg.inv(alike[seen] + np.diag(noise / counts[seen]))
        sums = precision.sum(axis=0)
        mean = float(sums @ log_us / sums.sum())
        weights = precision @ (log_us - mean)
        left_out = weights / np.maximum(np.diag(precision) - sums**2 / sums.sum(), 1e-12)
        fits.append((float(np.abs(left_out).mean()), mean, weights))
    _, mean, weights = min(fits, key=lambda one: one[0])
    return np.exp(mean + alike @ weights)[call]


def _copied(own: MeasuredStep, other: MeasuredStep) -> np.ndarray:
    """[num_nodes] latencies of another step; NaN where it lacks the node."""
    place = align(own.graph, other.graph)
    return np.where(place >= 0, other.latency_us[place], np.nan)


def parts_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Markdown: per evidence and figure the mean of projects of means of runs, the median and p90 of runs, the bias."""
    lines = [f"| evidence | {' | '.join(FIGURES)} |", f"|{'---|' * (1 + len(FIGURES))}"]
    table = pd.DataFrame(rows)
    for evidence, part in table.groupby("evidence", sort=False):
        signed = part.groupby("run")[list(FIGURES)].mean()
        error = part[list(FIGURES)].abs().groupby(part["run"]).mean()
        projects = error.groupby(error.index.str.split("-").str[0]).mean()
        texts = [f"{100 * projects[f].mean():.1f}; {100 * error[f].median():.1f}, {100 * error[f].quantile(0.9):.1f}; "
                 f"{100 * signed[f].mean():+.1f}" if error[f].notna().any() else "" for f in FIGURES]  # fmt: skip
        lines.append(f"| {evidence} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", nargs="*", default=[], metavar="TEXT", help="only runs whose name contains one")
    rows = [row for run, graph in gpu_recordings(parser.parse_args(arguments).runs) for row in parts(run, graph)]
    print(parts_table(rows))
    return 0


if __name__ == "__main__":
    run_main(main)
