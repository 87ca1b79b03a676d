"""Step times of held-out runs of the embedded data set: the demo's model, the analytical model, trivial answers.

The analytical model answers with constants that were fitted on the checkpoint's training runs.

python -m research.benchmarks.held_out_steps [CHECKPOINT]      default: what `make demo` trained
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gnnperf.graph import load_graph
from gnnperf.predict import Mode, Request, predict
from research.benchmarks._frame import run_main

DATASET = Path("datasets/cpu-gloo")
CHECKPOINT = Path("runs/demo/train/checkpoint.pt")


def measured_period_us(run: str) -> float:
    """Median period of the run's profiled steps."""
    return float(np.median([s.period_us for s in load_graph(DATASET / run).steps if s.period_us is not None]))


def predicted_period_us(run: str, mode: Mode, checkpoint: Path | None) -> float:
    """Median over the run's steps: each step's own graph, so that only structure comes from the trace."""
    steps = [s.step for s in load_graph(DATASET / run).steps if s.period_us is not None]
    answers = [predict(Request(trace=DATASET / run, mode=mode, checkpoint=checkpoint, step=k)) for k in steps]
    return float(np.median([a.step_time_us for a in answers]))


def main(arguments: Sequence[str]) -> None:
    """Print signed errors per held-out run and their summary."""
    checkpoint = Path(arguments[0]) if arguments else CHECKPOINT
    if not checkpoint.is_file():
        sys.exit(f"{checkpoint}: no such file; run `make demo`, or name a checkpoint trained on the split 'demo'")
    split = json.loads((DATASET / "splits.json").read_text())["demo"]
    seen = {run: measured_period_us(run) for run in split["train"]}
    print("| held-out run | measured ms | gnn | analytic | median of the same program's training runs |")
    print("|---|---|---|---|---|")
    errors = []
    for run in split["test"]:
        measured = measured_period_us(run)
        program = run.split("_")[0]
        alike = [v for r, v in seen.items() if r.split("_")[0] == program]
        answers = (
            predicted_period_us(run, Mode.hybrid, checkpoint),
            predicted_period_us(run, Mode.analytic, checkpoint),
            float(np.median(alike)),
        )
        errors.append([a / measured - 1 for a in answers])
        print(f"| {run} | {measured / 1000:.1f} | " + " | ".join(f"{e:+.0%}" for e in errors[-1]) + " |", flush=True)
    table = np.array(errors)  # [num_runs, 3]
    for name, row in (
        ("median of absolute errors", np.median(np.abs(table), axis=0)),
        ("largest", np.abs(table).max(axis=0)),
        ("mean signed error", table.mean(axis=0)),
    ):
        print(f"| {name} | | " + " | ".join(f"{v:+.0%}" if "signed" in name else f"{v:.0%}" for v in row) + " |")


if __name__ == "__main__":
    run_main(main)
