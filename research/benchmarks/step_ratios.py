"""How far predictions from a trace are off: steps from other steps of the run, and the ratio that an edit makes.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.step_ratios [--write]

repeat    score = log(measured step / step predicted from another step of the same trace); public GPU runs of three
          or more steps, outlier steps apart. A project is left out at a time.
edit      score = log(measured B / A / predicted ratio); recorded CPU runs A and B that differ in batch or dtype, the
          edit made on A's first recording. Likewise link (rates between hosts), cluster (from one host to two) and
          world_size (from one replica to two, and back). A workload is left out at a time, and the constants of the
          analytical model have not seen it.
host      score = log(host time of ops that two public traces share, relative / ratio of single-thread speeds). Programs
          and software differ, too: the squared reach of pairs on one host is subtracted from that of pairs on two.
          The host of the second trace is left out.

--write: bounds that ship (conf/analytic/step_ratio.yaml).
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError
from gnnperf.gnn import LEVEL, DeviceIntervals
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import HostSpec, conf_dir, default_cluster
from gnnperf.predict import Request, outlier_steps, predicted
from gnnperf.predict.api import Models, Setup
from gnnperf.predict.ratios import CLUSTER, EDIT, HOST, LINK, REPEAT, STEP_FILE, WORLD_SIZE
from gnnperf.predict.request import TraceEvidence
from gnnperf.predict.target import traced_device
from gnnperf.schedule import step_us
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._recorded_graphs import CACHE, folds, recorded_graphs, recordings
from research.benchmarks.declared_edits import link_pairs, replica_pairs, shape_pairs
from research.benchmarks.trace_evidence import LEAST_STEPS, gpu_recordings
from research.evaluation.loading import as_recorded
from research.fitting.device_intervals import save_device_intervals, student_quantile

HOST_CLASS = ("segment", "op_name", "event_name")
LEAST_CALLS, LEAST_CLASSES = 8, 8  # of a class in a trace; of a pair of traces
MOST_PAIRS = 80  # of recorded runs that differ in batch or dtype, at random
KINDS = {"batch": EDIT, "dtype": EDIT, "link": LINK, "two hosts": CLUSTER, "replicas": WORLD_SIZE}  # of pairs
GENERATION = "generation"  # what is left out: a project, a workload
Score = tuple[str, str, str, float]
HostTimes = tuple[str, HostSpec, pd.DataFrame]
PROVENANCE = (
    "log of measured over predicted: steps of public GPU runs from other steps of the same run ({repeats} steps of "
    "{projects} projects), ratios that edits make, on recorded CPU runs ({pairs}), and host times of ops that public "
    "traces on two hosts share ({hosts} ordered pairs); by research/benchmarks/step_ratios.py"
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    of_steps: list[Score] = []
    times: list[HostTimes] = []
    for run, graph in gpu_recordings():
        of_steps += repeats(run, graph)
        times += host_times(run, graph)
    scores = pd.DataFrame([*of_steps, *edits()], columns=[GENERATION, "family", "dtype", "score"])
    print_head("what", "left out", "cases", "median error", "within the bounds of the others", "high/low")
    for family, rows in scores.groupby("family"):
        for name, own in rows.groupby(GENERATION):
            print_row(family, name, *within(own["score"].to_numpy(float), *bounds_of(rows[rows[GENERATION] != name])))
    host_pairs = hosts(times)
    for name, own in host_pairs[host_pairs["host"] != host_pairs["from"]].groupby("host"):
        others = host_pairs[(host_pairs["host"] != name) & (host_pairs["from"] != name)]
        reach = reach_of_pairs(others[others["host"] != others["from"]])
        print_row("host, with other software", str(name), *within(own["score"].to_numpy(float), -reach, reach))
    if given.write:
        counts = dict(list(scores.groupby("family")))
        text = PROVENANCE.format(
            repeats=len(counts[REPEAT]), projects=counts[REPEAT][GENERATION].nunique(),
            hosts=int((host_pairs["host"] != host_pairs["from"]).sum()),
            pairs=", ".join(f"{kind}: {len(counts[kind])} of {counts[kind][GENERATION].nunique()} workloads"
                            for kind in dict.fromkeys(KINDS.values())),
        )  # fmt: skip
        same = host_pairs["host"] == host_pairs["from"]
        own_reach, reach = reach_of_pairs(host_pairs[same]), reach_of_pairs(host_pairs[~same])
        reach = float(np.sqrt(max(reach**2 - own_reach**2, 0.0)))  # what another host adds to programs and software
        bounds = {str(family): bounds_of(rows) for family, rows in counts.items()} | {HOST: (-reach, reach)}
        names = tuple(sorted(set(scores[GENERATION])))
        save_device_intervals(DeviceIntervals(LEVEL, bounds, names, text), conf_dir("analytic") / STEP_FILE)
    return 0


def repeats(run: str, graph: ExecutionGraph) -> Iterator[Score]:
    """(project, REPEAT, "", score) of every step with a period that is no outlier."""
    outliers = outlier_steps(graph.steps)
    labels = [label for label in graph.steps if label.period_us is not None and label.step not in outliers]
    for label in labels if len(graph.steps) >= LEAST_STEPS and len(labels) > 1 else ():
        try:
            estimate = predicted(graph, Request(step=label.step, evidence=TraceEvidence.other_steps))
        except InputError as error:
            print(f"left out: {run}: {error.what}", file=sys.stderr)
            return
        yield run.split("-")[0], REPEAT, "", float(np.log(step_us(label) / estimate.step_time_us))


def edits() -> Iterator[Score]:
    """(workload, kind of edit, kind of pair, score) of pairs of recorded runs."""
    every, load = recordings(), as_recorded(CACHE)
    constants = {fold.workload: fold.shared for fold in folds(every, recorded_graphs())}
    steps: dict[str, list[float]] = {}
    for recording in every.values():
        steps.setdefault(recording.run, []).append(recording.unprofiled_us)
    runs, known = set(steps), {run for run in steps if f"{run}/1" in every}
    shaped = [pair for pair in shape_pairs(runs) if pair.a in known]
    chosen = [shaped[at] for at in np.random.default_rng(0).permutation(len(shaped))[:MOST_PAIRS]]
    for pair in (*chosen, *link_pairs(runs), *replica_pairs(runs)):
        if pair.a not in known:
            continue
        first = every[f"{pair.a}/1"]
        try:
            models = Models(AnalyticPredictor(constants[first.workload]))
            setup = Setup(load(first), Request(whatif=list(pair.edits)), models)
            estimate = setup.step_prediction(setup.predict())
        except InputError as error:
            print(f"left out: {pair.a}: {error.what}", file=sys.stderr)
            continue
        assert estimate.whatif is not None, "an edit was requested"
        measured = float(np.mean(steps[pair.b]) / np.mean(steps[pair.a]))
        score = float(np.log(measured * estimate.step_time_us / estimate.whatif.step_time_us))
        yield first.workload, KINDS[pair.kind], pair.kind, score


def host_times(run: str, graph: ExecutionGraph) -> Iterator[HostTimes]:
    """(run, host, median and count of each host class); nothing where the device does not name a host."""
    device = traced_device(graph)
    host = None if device is None else default_cluster(device).host
    if host is not None:
        nodes = graph.nodes[((graph.nodes["node_type"] == "host") & (graph.nodes["latency_us"] > 0)).to_numpy()]
        us = nodes.groupby([nodes[name].astype(str) for name in HOST_CLASS])["latency_us"].agg(["median", "count"])
        yield run, host, us[us["count"] >= LEAST_CALLS]


def hosts(traces: Sequence[HostTimes]) -> pd.DataFrame:
    """Columns host, from, score of ordered pairs of public traces: their common host classes."""
    rows = []
    for (run, before, first), (other, after, second) in permutations(traces, 2):
        both = first.merge(second, left_index=True, right_index=True, suffixes=("", "_there"))
        if run != other and len(both) >= LEAST_CLASSES:
            measured = (both["median_there"] * both["count"]).sum() / (both["median"] * both["count"]).sum()
            predicted_ratio = before.single_thread_speed / after.single_thread_speed
            rows.append((after.name, before.name, float(np.log(measured / predicted_ratio))))
    return pd.DataFrame(rows, columns=["host", "from", "score"])


def reach_of_pairs(rows: pd.DataFrame) -> float:
    """Quantile LEVEL of |score|; infinite without any."""
    return float(rows["score"].abs().quantile(LEVEL)) if len(rows) else float("inf")


def within(scores: np.ndarray, log_low: float, log_high: float) -> tuple[str, ...]:
    """Cases, median error, share within, width."""
    ratio, (low, high) = np.exp(scores), np.exp([log_low, log_high])
    error = f"{100 * np.median(np.abs(ratio - 1.0)):.1f} %"
    return f"{len(scores)}", error, f"{100 * ((low <= ratio) & (ratio <= high)).mean():.0f} %", f"{high / low:.2f}"


def bounds_of(rows: pd.DataFrame) -> tuple[float, float]:
    """Where a score of one more project or workload is expected; groups count the same, whatever their size.

    mean +- t x root of (mean square distance of scores to the mean) x root of (1 + 1 / groups), Student's t.
    """
    groups = [own["score"].to_numpy(float) for _, own in rows.groupby(GENERATION)]
    mean = float(np.mean([group.mean() for group in groups]))
    spread = float(np.sqrt(np.mean([((group - mean) ** 2).mean() for group in groups])))
    reach = student_quantile((1.0 + LEVEL) / 2.0, len(groups) - 1) * spread * np.sqrt(1.0 + 1.0 / len(groups))
    return float(mean - reach), float(mean + reach)


if __name__ == "__main__":
    run_main(main)
