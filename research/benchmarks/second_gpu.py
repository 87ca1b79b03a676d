"""Steps of an H100 that gave no constant: blind, and from the same program's recording on an H200.

    python -m research.benchmarks.second_gpu

Prints a Markdown table. Steps are timed without the profiler. "Copy" is the step of the other GPU: the baseline.
"From its trace" replaces the GPU in the other recording, without the profiler's cost (`hardware=... profiler=remove`).
"Blind" uses no measurement. Kernels fill a step where they last for at least `FILLED` of it. The hosts of both machines
differ, and no prediction knows by how much.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, each
from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware import load_device
from gnnperf.predict import Request, predicted
from gnnperf.predict.request import Profiler
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._results import save_result
from research.benchmarks.trace_evidence import blind_prediction
from research.benchmarks.unprofiled_steps import figures

DATA = Path("datasets")
H100, H200 = "h100", "h200"
DEVICE = {H100: "h100_sxm", H200: "h200"}
FILLED = 0.85
COPY, MOVED, BLIND = "copy", "from its trace", "blind"


def first_recordings(name: str) -> dict[str, Recording]:
    """Run -> its first recording."""
    return {run: repeats[min(repeats)] for run, repeats in read_recordings(DATA / name).items()}


def kernels_us(graph: ExecutionGraph) -> float:
    """Of all kernels and copies of a step, the median over steps."""
    nodes = graph.nodes[((graph.nodes["stream"] >= 0) & (graph.nodes["step"] >= 0)).to_numpy()]
    works = nodes["node_type"].isin([str(NodeType.COMPUTE), str(NodeType.MEMORY)])
    return float(nodes[works.to_numpy()].groupby("step")["latency_us"].sum().median())


def steps(here: str, there: str) -> pd.DataFrame:
    """A row per run of the data set `here`: measured step, us, whether kernels fill it, and the predictions."""
    own, others = first_recordings(here), first_recordings(there)
    rows = []
    for run in each(sorted(own), "predicting", "runs"):
        graph, step_us = load_graph(own[run].path, None), own[run].unprofiled_us
        blind = blind_prediction(graph)
        assert blind is not None, "recorded runs name their device"
        row = {"run": run, "measured": step_us, "filled": kernels_us(graph) >= FILLED * step_us, "new": True,
               BLIND: blind.step_time_us}  # fmt: skip
        if run in others:
            request = Request(trace=others[run].path, hardware=load_device(DEVICE[here]), profiler=Profiler.remove)
            moved = predicted(load_graph(others[run].path, None), request)
            row |= {"new": False, COPY: others[run].unprofiled_us, MOVED: moved.step_time_us}
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    print_head("steps of", "runs", "part", "prediction", "median error", "mean", "p90", "max", "bias")
    for here, there in ((H100, H200), (H200, H100)):
        rows = steps(here, there)
        both = rows[~rows["new"]]
        parts = {"recorded on both GPUs": both, "of them, kernels fill the step": both[both["filled"]]}
        if here == H100:
            parts |= {"all": rows, "programs new to both": rows[rows["new"]],
                      "of all, kernels fill the step": rows[rows["filled"]]}  # fmt: skip
            error = 100 * (rows[BLIND] / rows["measured"] - 1).abs()
            save_result("second_gpu", float(error.mean()), float(np.quantile(error, 0.9)))
        for part, own in parts.items():
            for way in (COPY, MOVED, BLIND):
                if own[way].notna().all():
                    print_row(here, len(own), part, way, *figures((100 * (own[way] / own["measured"] - 1)).to_numpy()))


if __name__ == "__main__":
    run_main(main)
