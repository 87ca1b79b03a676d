"""Steps of an H100: blind, and from the same program's recording on an H200.

    python -m research.benchmarks.second_gpu [--write]

Prints Markdown tables. Training programs of the H100 gave constants of batch norms. Steps are timed without the
profiler. "Copy" is the step of the other GPU: the baseline. "From its trace" replaces the GPU in the other recording,
without the profiler's cost (`hardware=... profiler=remove`). "Blind" uses no measurement. Kernels fill a step where
they last for at least `FILLED` of it. The hosts of both machines differ, and their speeds are not given.

The last table is of the predicted ratio between both GPUs, which have the same processors. A score is of a family's
calls in one program: log(measured there, summed / (measured here x predicted ratio), summed). Group `unmodeled` holds
the ratio of memory bandwidths instead, over all calls. A program is left out at a time. --write: bounds that ship
(conf/analytic/sibling_ratio.yaml).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, each
from gnnperf.gnn import LEVEL, DeviceIntervals, group_names
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware import conf_dir, load_device
from gnnperf.predict import Request, predicted
from gnnperf.predict.ratios import SIBLING_FILE, UNMODELED
from gnnperf.predict.request import Profiler
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._recorded_graphs import first_recordings
from research.benchmarks._results import save_result
from research.benchmarks.recorded_kernels import DATA, DEVICE_OF, kernels
from research.benchmarks.step_ratios import GENERATION, bounds_of, within
from research.benchmarks.trace_evidence import blind_prediction
from research.benchmarks.unprofiled_steps import figures
from research.fitting.device_intervals import save_device_intervals

H100, H200 = "h100", "h200"
FILLED = 0.85
COPY, MOVED, BLIND = "copy", "from its trace", "blind"
INSIDE, WIDTH = "inside", "high/low"  # of the ratio's interval
LEAST_PROGRAMS = 5  # of a group
PROVENANCE = (
    "log of measured over predicted ratio of a family's calls in one program, on {programs} programs recorded "
    "on an H100 and an H200, in both directions; by research/benchmarks/second_gpu.py"
)


def kernels_us(graph: ExecutionGraph) -> float:
    """Of all kernels and copies of a step, the median over steps."""
    nodes = graph.nodes[((graph.nodes["stream"] >= 0) & (graph.nodes["step"] >= 0)).to_numpy()]
    works = nodes["node_type"].isin([str(NodeType.COMPUTE), str(NodeType.MEMORY)])
    return float(nodes[works.to_numpy()].groupby("step")["latency_us"].sum().median())


def steps(here: str, there: str) -> pd.DataFrame:
    """A row per run of the data set `here`: measured step, us, whether kernels fill it, and the predictions."""
    own, others = first_recordings(DATA / here), first_recordings(DATA / there)
    rows = []
    for run in each(sorted(own), "predicting", "runs"):
        graph, step_us = load_graph(own[run].path, None), own[run].unprofiled_us
        blind = blind_prediction(graph)
        assert blind is not None, "recorded runs name their device"
        row = {"run": run, "measured": step_us, "filled": kernels_us(graph) >= FILLED * step_us, "new": True,
               BLIND: blind.step_time_us}  # fmt: skip
        if run in others:
            request = Request(trace=others[run].path, hardware=load_device(DEVICE_OF[here]), profiler=Profiler.remove)
            moved = predicted(load_graph(others[run].path, None), request)
            assert moved.ratio_interval is not None, "another GPU was requested"
            low, high = moved.ratio_interval
            row |= {"new": False, COPY: others[run].unprofiled_us, MOVED: moved.step_time_us,
                    INSIDE: low <= step_us / others[run].unprofiled_us <= high, WIDTH: high / low}  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def ratio_scores() -> pd.DataFrame:
    """Columns generation (a program), group, score: of sums of calls that both GPUs ran, in both directions."""
    own, others = (kernels(name).assign(first=lambda rows: rows["run"].str.endswith("/1")).query("first")
                   for name in (H100, H200))  # fmt: skip
    both = own.merge(others, on=["run", "call"], suffixes=("", "_there"))
    both = both[(both["us"] > 0) & (both["us_there"] > 0)]
    bandwidth = [load_device(DEVICE_OF[name]).memory_bandwidth_bytes_per_s for name in (H200, H100)]
    dtype = both["call"].map(lambda call: call.dtype).to_numpy()
    both = both.assign(group=group_names(both["family"].to_numpy(), dtype),
                       ratio=(both["form"] / both["number"]) / (both["form_there"] / both["number_there"]),
                       bound=bandwidth[0] / bandwidth[1])  # fmt: skip
    known = both[both["ratio"].notna()]
    parts = [known.assign(group=known["family"]), known, both.assign(group=UNMODELED, ratio=both["bound"])]
    rows = pd.concat(parts)
    rows = rows.assign(here=rows["us"] * rows["number"], there=rows["us_there"] * rows["number"])
    rows = rows.assign(moved=rows["there"] * rows["ratio"], back=rows["here"] / rows["ratio"])
    sums = rows.groupby(["group", "run"])[["here", "there", "moved", "back"]].sum().reset_index()
    forth, back = np.log(sums["here"] / sums["moved"]), np.log(sums["there"] / sums["back"])
    columns = {"family": sums["group"], GENERATION: sums["run"]}
    return pd.concat([pd.DataFrame({**columns, "score": score}) for score in (forth, back)], ignore_index=True)


def judged_bounds(scores: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Each group by the bounds that the other programs give."""
    for family, rows in scores.groupby("family"):
        programs = rows[GENERATION].unique()
        if len(programs) >= LEAST_PROGRAMS:
            left_out = [(rows[rows[GENERATION] == name]["score"].to_numpy(), bounds_of(rows[rows[GENERATION] != name]))
                        for name in programs]  # fmt: skip
            inside = np.mean([((low <= own) & (own <= high)).mean() for own, (low, high) in left_out])
            _, error, _, width = within(rows["score"].to_numpy(), *bounds_of(rows))
            yield str(family), f"{len(programs)}", error, f"{100 * inside:.0f} %", width


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    print_head("steps of", "runs", "part", "prediction", "median error", "mean", "p90", "max", "bias")
    intervals = []
    for here, there in ((H100, H200), (H200, H100)):
        rows = steps(here, there)
        both = rows[~rows["new"]]
        parts = {"recorded on both GPUs": both, "of them, kernels fill the step": both[both["filled"]]}
        if here == H100:
            parts |= {"all": rows, "programs new to both": rows[rows["new"]],
                      "of all, kernels fill the step": rows[rows["filled"]]}  # fmt: skip
            error = 100 * (rows[BLIND] / rows["measured"] - 1).abs()
            save_result("second_gpu", float(error.mean()), float(np.quantile(error, 0.9)))
        for name, own in list(parts.items())[:2]:
            inside, width = 100 * own[INSIDE].astype(float).mean(), own[WIDTH].median()
            intervals.append((here, name, len(own), f"{inside:.0f} %", f"{width:.2f}"))
        for part, own in parts.items():
            for way in (COPY, MOVED, BLIND):
                if own[way].notna().all():
                    print_row(here, len(own), part, way, *figures((100 * (own[way] / own["measured"] - 1)).to_numpy()))
    print_head("ratio to the other GPU", "part", "runs", "within the interval", "median high/low")
    for row in intervals:
        print_row(*row)
    scores = ratio_scores()
    print_head("calls on both GPUs", "programs", "median error", "within the bounds of the others", "high/low")
    for judged in judged_bounds(scores):
        print_row(*judged)
    if given.write:
        bounds = {str(family): bounds_of(rows) for family, rows in scores.groupby("family")
                  if rows[GENERATION].nunique() >= LEAST_PROGRAMS}  # fmt: skip
        programs = tuple(sorted(set(scores[GENERATION])))
        result = DeviceIntervals(LEVEL, bounds, programs, PROVENANCE.format(programs=len(programs)))
        save_device_intervals(result, conf_dir("analytic") / SIBLING_FILE)


if __name__ == "__main__":
    run_main(main)
