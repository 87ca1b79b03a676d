"""Step times of the analytical model on held-out recordings, with the second pass and without it.

Split `run`, part test, several ranks; the shipped constants, which no recording of this data set was used for, except
the rates of contention (part train). Latencies are those of the same answer in both: only the schedule differs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks._contention import cpu_recordings, split_of
from gnnperf.analytic import AnalyticPredictor
from gnnperf.evaluate.recordings import Recording
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.predict.assemble import Question, assemble
from gnnperf.predict.config import Mode
from gnnperf.predict.step_choice import choose_step
from gnnperf.predict.target import choose_target


def step_times_us(graph: ExecutionGraph) -> tuple[float, float, float]:
    """(measured, predicted in one pass, predicted with the second) of the median step."""
    label, target = choose_step(graph, None), choose_target(graph, None, None)
    prediction = AnalyticPredictor().predict(graph.step(label.step).for_predictors(), target.cluster)
    question = Question(
        label=label, structure_step=label.step, mode=Mode.analytic, hardware=target.cluster.device.name,
        cluster=target.cluster.name, traced_hardware="", same_hardware=True, provenance={},
    )  # fmt: skip
    first, second = assemble(replace(prediction, alone=None), question), assemble(prediction, question)
    return first.traced_step_time_us, first.step_time_us, second.step_time_us


def line(name: str, found: np.ndarray) -> str:
    """One row from (measured, first, second) [n, 3]; `changed`: the second pass is more than 1 % longer."""
    errors = [found[:, k] / found[:, 0] - 1 for k in (1, 2)]
    cells = [f"{np.median(np.abs(e)):.1%} / {np.quantile(np.abs(e), 0.9):.1%} / {np.median(e):+.1%}" for e in errors]
    changed = int((found[:, 2] > 1.01 * found[:, 1]).sum())
    return f"| {name} | {len(found)} | {changed} | {' | '.join(cells)} |"


def main() -> None:
    """Print one line per link and number of ranks, then those that the second pass changes."""
    part = split_of("run")
    rows: list[tuple[Recording, tuple[float, float, float]]] = []
    for recording, graph in cpu_recordings():
        if part.get(recording.name) == "test":
            rows.append((recording, step_times_us(graph)))
    print("| recordings | n | changed | first pass: median / p90 / bias | second pass: median / p90 / bias |")
    print("|---" * 5 + "|")
    groups = {f"{r.link}, x{r.world_size}" for r, _ in rows}
    for name in sorted(groups):
        print(line(name, np.array([t for r, t in rows if f"{r.link}, x{r.world_size}" == name])))
    found = np.array([t for _, t in rows])
    print(line("all", found))
    changed = found[found[:, 2] > 1.01 * found[:, 1]]
    if len(changed):
        print(line("changed by the second pass", changed))


if __name__ == "__main__":
    main()
