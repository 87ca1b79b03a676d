"""How long a step takes without the profiler, predicted from its profile, against steps that were timed without it.

    python -m research.benchmarks.unprofiled_steps

Prints Markdown tables of recorded data sets. "As recorded" is the default prediction, which contains the profiler's
cost: the baseline. "Typical cost" is what a trace without the recorder's card gets, "loop" what its events cost in a
short loop. "Blind" uses no measurement of the trace; in the last rows the host constants are fitted on the GPU runs of
other programs only.

The last table is of runs that the profiler makes longer: the factor of the typical cost in a short loop that leads to
the step that was timed without the profiler. The H200's median ships (`gnnperf.graph.IN_STEPS`).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gnnperf.analytic import default_constants, fit_lags
from gnnperf.core import each
from gnnperf.gnn.data.recordings import Recording
from gnnperf.graph import TYPICAL_ON_CPU, TYPICAL_ON_GPU, load_graph
from gnnperf.predict import Request
from gnnperf.predict.api import Setup, predicted, setup_of
from gnnperf.predict.profiler import RecordedProfiler, calibrated, from_cost, recorded_profiler, typical_cost
from gnnperf.predict.request import TraceEvidence
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._recorded_graphs import first_recordings
from research.benchmarks._results import save_result
from research.benchmarks.trace_evidence import blind_prediction
from research.fitting.gpu_constants import recorded_hosts
from research.fitting.host_runs import fit_host_runs, host_run

DATA = Path("datasets")
ON_GPU, UNSEEN_GPU = "h200", "h100"  # the latter had no part in fits of hosts and of the profiler
SETS = (ON_GPU, UNSEEN_GPU, "cpu-unseen")
LONGER = 1.1  # runs whose step the profiler makes longer by this factor
WAYS = ("as recorded", "without the profiler", "without it, typical cost", "without it, loop", "blind")


def predictions_us(recording: Recording) -> tuple[float, ...]:
    """The step in each of `WAYS`, and the factor of the loop's cost that leads to the timed step."""
    graph, request = load_graph(recording.path, None), Request(trace=recording.path)
    setup = setup_of(graph, request)
    assert isinstance(setup, Setup) and setup.measured is not None, "a recorded run starts from its trace"
    recorded = setup.step_prediction(setup.predict())
    blind = predicted(graph, Request(trace=recording.path, evidence=TraceEvidence.none))
    # not by `profiler=remove`, whose cost is calibrated to the step that is to be predicted here
    measured, question, on_gpu = setup.measured, setup.question, graph.runs_on_gpu
    loop = TYPICAL_ON_GPU if on_gpu else TYPICAL_ON_CPU
    costs = recorded_profiler(recording.path, on_gpu).cost, typical_cost(on_gpu), loop
    removed_us = (from_cost(recorded, measured, question, cost) for cost in costs)
    scaled = calibrated(RecordedProfiler(loop, recording.unprofiled_us),
                        lambda cost: from_cost(recorded, measured, question, cost))  # fmt: skip
    return recorded.step_time_us, *removed_us, blind.step_time_us, scaled.cost.op_us / loop.op_us


def left_out_us(runs: Sequence[Recording]) -> np.ndarray:
    """[num_runs] blind steps with host constants of the other programs' runs, us."""
    graphs = [load_graph(run.path, None) for run in runs]
    plain = [recorded_hosts(run.path) for run in runs]
    hosts = [host_run(day, graph) for day, graph in plain]
    programs = [run.workload for run in runs]
    result = []
    for graph, program in zip(graphs, each(programs, "leaving out", "programs"), strict=True):
        others = [number for number, other in enumerate(programs) if other != program]
        constants, _ = fit_host_runs([hosts[number] for number in others], default_constants("gpu"))
        constants = fit_lags([plain[number][1] for number in others], "gpu", constants)
        blind = blind_prediction(graph, constants=constants)
        assert blind is not None, "recorded runs name their device"
        result.append(blind.step_time_us)
    return np.array(result)


def main() -> None:
    print_head("data set", "runs", "prediction", "median error", "mean", "p90", "max", "bias")
    factors: dict[str, np.ndarray] = {}
    for name in SETS:
        runs = list(first_recordings(DATA / name).values())
        every = np.array([predictions_us(run) for run in each(runs, "predicting", "runs")])  # [num_runs, 6]
        predicted_us, factor = every[:, :-1], every[:, -1]
        measured_us = np.array([run.unprofiled_us for run in runs])
        longer = np.array([run.profiled_us > LONGER * run.unprofiled_us for run in runs])
        others_us = left_out_us(runs) if name == ON_GPU else np.zeros(len(runs))  # [num_runs]
        factors[name] = factor[longer]
        for part, chosen in (("all", np.ones(len(runs), dtype=bool)), ("profiler adds > 10 %", longer)):
            signed = 100 * (predicted_us[chosen] / measured_us[chosen, None] - 1)
            for way, column in zip(WAYS, signed.T, strict=True):
                print_row(f"{name}, {part}", chosen.sum(), way, *figures(column))
            if name == ON_GPU:
                print_row(f"{name}, {part}", chosen.sum(), "blind, hosts of other programs",
                          *figures(100 * (others_us[chosen] / measured_us[chosen] - 1)))  # fmt: skip
        if name == ON_GPU:
            error = np.abs(100 * (predicted_us[:, 1] / measured_us - 1))
            save_result("unprofiled_steps", float(error.mean()), float(np.quantile(error, 0.9)))

    print_head("runs that the profiler makes longer", "runs", "factor of the cost: median", "quartiles")
    for part, factor in factors.items():
        low, middle, high = np.quantile(factor, (0.25, 0.5, 0.75))
        print_row(part, len(factor), f"{middle:.2f}", f"{low:.2f} to {high:.2f}")


def figures(signed: np.ndarray) -> tuple[str, ...]:
    """Median, mean, p90 and maximum of absolute errors, and the bias, in percent."""
    error = np.abs(signed)
    sizes = (np.median(error), error.mean(), np.quantile(error, 0.9), error.max())
    return (*(f"{size:.1f} %" for size in sizes), f"{signed.mean():+.1f} %")


if __name__ == "__main__":
    run_main(main)
