"""How much of a recorded step its labels hold: each recording's own labels, scheduled, against its step time.

What remains is what no model trained on these labels can learn of the step. Three labels: means over all steps as
recorded, next to whatever ran with them; the same of isolated ops, scheduled with contention; those over the steps that
took about the median time (gnnperf.gnn.data.runs). Recordings of the training part; unlabeled nodes take the base.

    python -m research.benchmarks.labels [--axis size]
"""

from __future__ import annotations

import argparse

import numpy as np

from gnnperf.gnn import WORK, Step, load_data, run_of
from gnnperf.gnn.data.prepare import DataConfig
from gnnperf.gnn.data.step_time import contended_step_time_us, step_time_us


def isolated_us(step: Step, label: str) -> np.ndarray:
    """[num_nodes] latencies that a label stands for; NaN without one."""
    result = np.full(step.graph.num_nodes, np.nan)
    for node_type in WORK:
        store = step.data[node_type]
        result[store.node_id.numpy()] = (store.base_us * store[label].double().exp()).numpy()
    return result


def step_times_us(step: Step) -> dict[str, float]:
    """Label -> the step time that it gives."""
    recorded_us = step.nodes["latency_us"].to_numpy(np.float64)
    return {
        "all steps, as recorded": step_time_us(step, recorded_us),
        "all steps, ops alone": contended_step_time_us(step, isolated_us(step, "target")),
        "steady steps, ops alone": contended_step_time_us(step, isolated_us(step, "steady_target")),
    }


def main() -> None:
    """Print the errors of each label over single recordings of the validation runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", default="size", help="whose validation recordings")
    data = load_data(DataConfig(axis=parser.parse_args().axis))
    result: dict[str, list[float]] = {}
    for step in data.recordings:
        for label, time_us in step_times_us(step).items():
            result.setdefault(label, []).append(float(np.log(time_us / step.step_us)))
    runs = len({run_of(step.run) for step in data.recordings})
    print(f"{len(data.recordings)} recordings of {runs} runs; |log(scheduled / measured)| in %")
    for label, logs in result.items():
        off = 100 * np.abs(logs)
        print(f"{label:24s} mean {off.mean():5.1f}  median {np.median(off):5.1f}  p90 {np.quantile(off, 0.9):5.1f}  "
              f"max {off.max():6.1f}  bias {100 * np.mean(logs):+5.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
