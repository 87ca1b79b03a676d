"""Known changes of a program, predicted from the analytical model's latencies: which way, and by how much.

    python -m research.benchmarks analytic_interventions

As `gnnperf interventions datasets/cpu-gloo`, but no latency is recorded: every node of A's graph, and every touched
node that the edit takes from B's graph, has the answer of the analytical model, whose constants have not seen the
pair's workload. What is declared (a sleep) stays declared; a sleep is put in, not taken out, as the model of B's graph
has none in it.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from gnnperf.gnn.data.recordings import Recording, Repeats
from gnnperf.graph import ExecutionGraph
from research.benchmarks._frame import run_main
from research.benchmarks._recorded_graphs import DATASET, answered, folds, recorded_graphs, recordings
from research.benchmarks._results import save_result
from research.evaluation.interventions import KindSummary, LeftOut, Trial, evaluate_pairs, summarize_trials
from research.evaluation.pairs import Change, read_pairs


def main() -> None:
    """Print one row per kind of change."""
    result, graphs = recordings(), recorded_graphs()
    constants = {fold.workload: fold.shared for fold in folds(result, graphs)}

    def load(recording: Recording) -> ExecutionGraph:
        return answered(graphs[recording.name], constants[recording.workload])

    runs: dict[str, dict[int, Recording]] = {}
    for recording in result.values():
        runs.setdefault(recording.run, {})[recording.repeat] = recording
    trials, left_out = evaluate_pairs(read_pairs(DATASET), dict[str, Repeats](runs), load=load)
    sources = {number: pair.a for number, pair in enumerate(read_pairs(DATASET))}
    retained = [t for t in trials if t.kind != Change.SLEEP or t.source == sources[t.pair]]
    summaries = summarize_trials(retained)
    Console(width=140).print(_table(summaries))
    whole = next(one for one in summaries if one.kind == "all")
    save_result("analytic_interventions", 100 * whole.sign_right,
                interval=(100 * whole.sign_low, 100 * whole.sign_high))  # fmt: skip
    _print_rest(retained, left_out)


def _table(rows: list[KindSummary]) -> Table:
    table = Table("kind", "pairs", "trials", "above noise", "sign right %", "error % above noise", "error %", "p90 %",
                  "nothing changes %", "summed %", "measured again %")  # fmt: skip
    for row in rows:
        shares = (row.error_median_above_noise, row.error_median, row.error_p90, row.no_change_error,
                  row.summed_error_median, row.remeasured_error_median)  # fmt: skip
        sign = f"{100 * row.sign_right:.1f} ({100 * row.sign_low:.1f} to {100 * row.sign_high:.1f})"
        table.add_row(row.kind, str(row.pairs), str(row.trials), str(row.above_noise), sign,
                      *(f"{100 * value:.1f}" for value in shares))  # fmt: skip
    return table


def _print_rest(trials: list[Trial], left_out: list[LeftOut]) -> None:
    print(f"{len(left_out)} pairs left out")
    wrong = [t for t in trials if t.above_noise and not t.sign_right]
    for trial in wrong:
        print(f"wrong sign: {trial.kind}, {trial.source} -> {trial.target}: predicted {trial.predicted_us:+.0f} us, "
              f"measured {trial.measured_us:+.0f} us")  # fmt: skip


if __name__ == "__main__":
    run_main(main)
