"""Fit the analytical model's host overheads and lags on traces of GPUs, and write conf/analytic/gpu.yaml.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.gpu_constants [OUT.yaml]

Public traces and the recordings of `datasets/h200` are fitted on. The folder holds the files of `gnnperf data fetch`.
Only files under MIT, BSD or Apache licenses that were merged in their repositories are used, and none of 2021 (its
overheads differ). What the profiler adds is taken out: of public files, as the recorder measured it on another host
(these files say nothing of it), and there what it adds inside of runtime calls stays in.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.analytic import AnalyticConstants, fit_lags, load_constants, on_reference_host
from gnnperf.analytic.predictor import CALL, KERNEL, launched_kernels
from gnnperf.graph import TYPICAL_ON_GPU, ExecutionGraph, ProfilerCost, build_graph, load_graph
from gnnperf.hardware import conf_dir, default_cluster
from gnnperf.predict.target import traced_device
from gnnperf.trace import read_card, read_run
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._public_runs import mirror
from research.evaluation.loading import without_profiler
from research.fitting.files import requested_file, save_constants
from research.fitting.host_runs import fit_host_runs, host_run
from research.fitting.logs import fit_logs, softened

RUNS = (
    "dlrm-8", "hta/trace_diff/control", "hta/negative_queue_length_values_check", "hta/nccl_parser_config",
    "tracelens/h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
)  # fmt: skip
# Programs that launch graphs, most of them inference servers: for the cost of that call only.
GRAPH_LAUNCHES = (
    "ao/amg_example_trace.json.gz",
    "tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
    "tracelens/inference/vllm_decode_full/graph_execution.json.gz",
    "tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
)
PLAIN_LICENSES = ("MIT", "BSD", "Apache")
RECORDED = Path("datasets/h200")
PAUSED = "_sleep-"  # in names of recordings whose host sleeps on purpose
DISTURBED = 0.3  # log residuals of graph launches beyond that count linearly
LEAST_US = 0.5  # of a graph launch
COST = ProfilerCost(
    op_us=0.88, range_us=0.48, call_us=0.0, step_us=0.0, provenance="datasets/cpu-gloo, median of cards"
)
PROVENANCE = (
    "host_overhead_us, segment_us and lag_us.gpu: fitted by research/fitting/gpu_constants.py on 59 recordings of two "
    "H200 machines (datasets/h200) and public Kineto traces (param MIT, HolisticTraceAnalysis MIT, TraceLens MIT; "
    "V100, A100, H100 hosts), scaled to an EPYC 7763 by the single-thread speed of each device's usual host; "
    "overheads are means over runs, without each run's effect and what the profiler adds (per op and "
    "annotation of public traces 0.88 and 0.48 us, measured by the recorder on an AMD EPYC host; what it adds inside "
    "of their runtime calls, T4, is still there). Do not judge the analytical model on those runs with these "
    "constants. lag_us.gpu sync and thread, lag_us.cpu, copy_floor_us, "
    "pageable_share: estimates. collective_floor_us: NCCL 2.20 src/graph/tuning.cc, base latency of the ring with "
    "LL128 (gpu); an estimate for gloo (cpu). graph_launch_us: the same script, with five programs that launch graphs "
    "(param MIT, ao BSD, TraceLens MIT); the profiler traces every kernel under a launch, and its part is in it."
)


def graphs(mirror: Path, runs: tuple[str, ...] = RUNS) -> Iterator[ExecutionGraph]:
    """The graphs of `runs`, from files that are plainly licensed and were merged in their repositories."""
    plain = [e for e in load_catalog() if e.license.startswith(PLAIN_LICENSES) and "unmerged" not in e.license]
    for run in runs:
        paths = [mirror / e.name for e in plain if e.run == run and e.kind in ("kineto", "archive")]
        if not paths:
            raise SystemExit(f"{run}: no plainly licensed, merged file in the catalog")
        graph = build_graph(read_run(paths, name=run))
        print(f"{run}: {graph.num_nodes} nodes")
        yield graph


def fit_graph_launches(measured: Iterable[ExecutionGraph], base: AnalyticConstants) -> AnalyticConstants:
    """Constants with the cost of graph launches on these graphs: one point per graph and number of kernels."""
    points = np.array([point for graph in measured for point in _points(graph)]).reshape(-1, 2)
    if not len(points):
        return base
    kernels, log_us = points[:, 0], np.log(points[:, 1])

    def residuals(result: np.ndarray) -> np.ndarray:
        return softened(np.log(result[0] + result[1] * kernels) - log_us, DISTURBED)

    call, kernel = fit_logs(residuals, np.array([base.graph_launch_us[CALL], base.graph_launch_us[KERNEL]]))
    return replace(base, graph_launch_us={CALL: float(call), KERNEL: float(kernel)})


def _points(graph: ExecutionGraph) -> list[tuple[float, float]]:
    kernels, latency = launched_kernels(graph), graph.nodes["latency_us"].to_numpy()
    known = (kernels > 0) & (latency > LEAST_US)
    return [(float(n), float(np.median(latency[known & (kernels == n)]))) for n in np.unique(kernels[known])]


def _scaled(graph: ExecutionGraph) -> ExecutionGraph:
    """With host work of an EPYC 7763. Traces do not name their host: it counts as the usual one of the device."""
    device = traced_device(graph)
    return graph if device is None else on_reference_host(graph, default_cluster(device).host_speed)


def host_graphs(without: str = "") -> list[tuple[str, ExecutionGraph]]:
    """Campaign and graph of each run that host constants are fitted on, but the runs of a project.

    A campaign is a project of public traces, or a day of our own recordings: each day had a host of its own.
    """
    public = tuple(run for run in RUNS if run.split("/")[0] != without)
    measured = [(run.split("/")[0], without_profiler(graph, COST))
                for run, graph in zip(public, graphs(mirror(), public), strict=True)]  # fmt: skip
    recordings = [card.parent for card in sorted(RECORDED.glob("*/[0-9]*/run.json"))]
    return [(campaign, _scaled(graph)) for campaign, graph in measured] + [
        recorded_hosts(path) for path in recordings if PAUSED not in path.parent.name
    ]


def recorded_hosts(path: Path) -> tuple[str, ExecutionGraph]:
    """Day and graph of a recording, with host work of the reference and without the profiler's typical cost."""
    day = str((read_card(path) or {})["recorded_at"])[: len("2026-11-26")]
    return day, _scaled(without_profiler(load_graph(path, None), TYPICAL_ON_GPU))


def fit_hosts(measured: Sequence[tuple[str, ExecutionGraph]]) -> AnalyticConstants:
    """The shipped constants with host overheads and lags of these graphs."""
    base = load_constants(conf_dir("analytic") / "gpu.yaml")
    fitted, campaigns = fit_host_runs([host_run(campaign, graph) for campaign, graph in measured], base)
    print("host work of a campaign over the reference:", campaigns.round(2).to_dict())
    return fit_lags([graph for _, graph in measured], "gpu", fitted)


def main() -> None:
    """Fit and write."""
    out = requested_file("gpu.yaml")
    result = host_graphs()
    served = map(_scaled, graphs(mirror(), GRAPH_LAUNCHES))
    fitted = fit_graph_launches([*(graph for _, graph in result), *served], fit_hosts(result))
    print({k: round(v, 2) for k, v in fitted.segment_us.items()}, fitted.lag_us["gpu"], len(fitted.host_overhead_us))
    save_constants(replace(fitted, provenance=PROVENANCE), out)


if __name__ == "__main__":
    main()
