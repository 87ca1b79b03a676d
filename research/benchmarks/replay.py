"""Strict replay of public runs: error of period and makespan next to a copy of the other step; collectives matched."""

import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import ReplayResult, replay_step
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._public_runs import graph_recordings, imported
from research.benchmarks._results import save_result

MAX_PAIRS = 20


@dataclass(frozen=True)
class Row:
    """One run: [num_pairs] relative errors, and shares."""

    name: str
    period: np.ndarray
    makespan: np.ndarray
    trivial_period: np.ndarray
    trivial_makespan: np.ndarray
    start_error_us: float
    aligned: float
    medians: float
    peers: float
    num_unknown: int
    matched: float
    cause: str

    @property
    def errors(self) -> np.ndarray:
        """[pairs] |error| of the period, or of the makespan where a run has one step."""
        known = self.period[~np.isnan(self.period)]
        return np.abs(known if len(known) else self.makespan)


def pairs(graph: ExecutionGraph) -> list[tuple[int, int]]:
    """(structure step, latency step); a single step replays itself with medians of the other ranks."""
    steps = range(len(graph.steps))
    if len(graph.steps) == 1:
        return [(0, 0)]
    all_pairs = [(i, j) for j, i in product(steps, steps) if i != j and j > 0]
    return [all_pairs[k] for k in np.unique(np.linspace(0, len(all_pairs) - 1, MAX_PAIRS).astype(int))]


def measure(name: str, graph: ExecutionGraph) -> Row:
    """Replay every pair of steps of one run."""
    results = [replay_step(graph, i, j) for i, j in pairs(graph)]
    labels = [(graph.steps[i], graph.steps[j]) for i, j in pairs(graph)]
    start_errors_us = [np.abs(r.schedule.start_us - r.measured_start_us) for r in results]
    row = Row(
        name=name,
        period=np.array([_ratio(r.period_us, r.measured.period_us) for r in results]),
        makespan=np.array([_ratio(r.makespan_us, r.measured.makespan_us) for r in results]),
        trivial_period=np.array([_ratio(i.period_us, j.period_us) for i, j in labels]),
        trivial_makespan=np.array([_ratio(i.makespan_us, j.makespan_us) for i, j in labels]),
        start_error_us=float(np.nanmedian(np.concatenate(start_errors_us))),
        aligned=float(np.mean([r.aligned_share for r in results])),
        medians=float(np.mean([r.median_time_share for r in results])),
        peers=float(np.mean([r.peer_time_share for r in results])),
        num_unknown=max(r.num_unknown for r in results), matched=matched_share(graph), cause="",
    )  # fmt: skip
    return Row(**{**row.__dict__, "cause": cause(graph, results) if row.errors.max() > 0.03 else ""})


def _ratio(predicted: float | None, measured: float | None) -> float:
    return float("nan") if predicted is None or measured is None else predicted / measured - 1


def cause(graph: ExecutionGraph, results: list[ReplayResult]) -> str:
    """What the worst pair's error comes from: nodes only one step has, and gaps no edge explains."""
    worst = max(results, key=lambda r: abs(r.makespan_us - r.measured.makespan_us))
    missing = 1 - worst.aligned_share
    lag = graph.edges["lag_us"].to_numpy()
    long = np.flatnonzero(lag > 1000.0)
    if not len(long):
        return f"{missing:.1%} of nodes are in one of the two steps only"
    target = graph.nodes.iloc[graph.edges["dst"].to_numpy()[long]]
    busiest = target["event_name"].astype("str").str.slice(0, 28).value_counts().index[0]
    return (
        f"{len(long)} device starts {np.median(lag[long]) / 1000:.1f} ms (median) after every known cause, most often "
        f"{busiest!r}; {missing:.1%} of nodes in one step only"
    )


def matched_share(graph: ExecutionGraph) -> float:
    """Collectives matched over all ranks, of those in the window; NaN without any, and for the trace of one rank."""
    counts = graph.counts or {}
    matched, missing = (counts.get(f"collectives_{name}", 0) for name in ("matched", "without_all_peers"))
    return matched / (matched + missing) if matched + missing and len(graph.ranks) > 1 else float("nan")


COLUMNS = (
    "run", "pairs", "period error, median / max", "makespan error, median / max",
    "other step as it is, period / makespan", "nodes aligned", "time from medians",
    "untraced peers, as measured", "unknown nodes", "start error, median us", "collectives matched",
)  # fmt: skip


def texts(row: Row) -> tuple[object, ...]:
    """One row of the table."""
    known = row.period[~np.isnan(row.period)]
    period = f"{np.median(np.abs(known)):.2%} / {np.abs(known).max():.2%}" if len(known) else "-"
    trivial = f"{np.nanmedian(np.abs(row.trivial_period)):.1%}" if len(known) else "-"
    return (
        row.name, len(row.makespan), period,
        f"{np.median(np.abs(row.makespan)):.2%} / {np.abs(row.makespan).max():.2%}",
        f"{trivial} / {np.median(np.abs(row.trivial_makespan)):.1%}", f"{row.aligned:.1%}", f"{row.medians:.1%}",
        f"{row.peers:.1%}", row.num_unknown, f"{row.start_error_us:.0f}", f"{row.matched:.1%}",
    )  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore", RuntimeWarning)  # medians of runs that have no period
    print_head(*COLUMNS)
    rows = []
    for recording in graph_recordings():
        rows.append(measure(recording.name, imported(recording)[1]))
        print_row(*texts(rows[-1]))
    errors = np.array([np.median(r.errors) for r in rows])
    full = np.array([np.median(r.errors) for r in rows if r.aligned >= 0.99])
    save_result("replay", 100 * float(np.median(errors)), 100 * float(np.quantile(errors, 0.9)))
    save_result("collectives_matched", 100 * float(np.nanmin([r.matched for r in rows])))
    print(f"\nmedian error over {len(rows)} runs {np.median(errors):.2%}, p90 {np.quantile(errors, 0.9):.2%}, ", end="")
    print(f"worst pair {max(r.errors.max() for r in rows):.2%}; ", end="")
    print(f"over the {len(full)} runs that align >= 99 %: {np.median(full):.2%}")
    for row in rows:
        if row.cause:
            print(f"above 3 %: {row.name} ({row.errors.max():.1%}): {row.cause}")


if __name__ == "__main__":
    run_main(main)
