"""Strict replay of a recorded data set: how far structure and class medians explain each step, by kind of run."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.graph import load_graph
from gnnperf.schedule import replay_step
from research.benchmarks._frame import run_main

COLUMNS = ("recordings", "n", "median", "p90", "p95", "max", "bias", "other step as it is", "aligned", "untraced peers")
QUANTILES = (0.5, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class Replayed:
    """One recording."""

    recording: Recording
    errors: np.ndarray
    trivial: np.ndarray
    aligned: float
    peers: float


def replayed(recording: Recording) -> Replayed:
    """Replay step j on the structure of step i, for all i != j."""
    graph = load_graph(recording.path)
    errors, trivial, aligned, peers = [], [], [], []
    for i, j in permutations(range(len(graph.steps)), 2):
        result = replay_step(graph, graph.steps[i].step, graph.steps[j].step)
        label, other = graph.steps[j], graph.steps[i]
        if result.period_us is not None and label.period_us is not None and other.period_us is not None:
            errors.append(result.period_us / label.period_us - 1)
            trivial.append(other.period_us / label.period_us - 1)
        else:
            errors.append(result.makespan_us / label.makespan_us - 1)
            trivial.append(other.makespan_us / label.makespan_us - 1)
        aligned.append(result.aligned_share)
        peers.append(result.peer_time_share)
    return Replayed(recording, np.array(errors), np.array(trivial), float(np.mean(aligned)), float(np.mean(peers)))


GROUPS: tuple[tuple[str, Callable[[Recording], str]], ...] = (
    ("all", lambda recording: "all"),
    ("workload", lambda recording: recording.workload),
    ("ranks", lambda recording: f"{recording.world_size} ranks"),
    ("link", lambda recording: recording.link),
)


def table(rows: Sequence[Replayed]) -> Iterable[str]:
    """Markdown: one line per group of recordings; quantiles over all pairs of steps."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for _, of in GROUPS:
        for name in sorted({of(row.recording) for row in rows}):
            group = [row for row in rows if of(row.recording) == name]
            errors = np.concatenate([row.errors for row in group])
            trivial = np.abs(np.concatenate([row.trivial for row in group]))
            quantiles = " | ".join(f"{q:.2%}" for q in np.quantile(np.abs(errors), QUANTILES))
            yield (
                f"| {name} | {len(group)} | {quantiles} | {np.median(errors):+.2%} | {np.median(trivial):.1%} "
                f"| {np.mean([row.aligned for row in group]):.1%} | {np.mean([row.peers for row in group]):.1%} |"
            )


def main(words: Sequence[str]) -> None:
    """Print the table and the worst recordings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path, nargs="?", default=Path("datasets/cpu-gloo"))
    parser.add_argument("--worst", type=int, default=10, help="recordings to name (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="side by side (default: %(default)s)")
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore", RuntimeWarning)
    recordings = [r for repeats in read_recordings(arguments.dataset).values() for r in repeats.values()]
    with ProcessPoolExecutor(arguments.processes) as processes:
        rows = list(processes.map(replayed, recordings, chunksize=4))
    for line in table(rows):
        print(line)
    print(f"\nworst {arguments.worst} by the median over their pairs of steps:")
    for row in sorted(rows, key=lambda row: -float(np.median(np.abs(row.errors))))[: arguments.worst]:
        print(f"  {row.recording.name}: median {np.median(np.abs(row.errors)):.2%}, aligned {row.aligned:.1%}")


if __name__ == "__main__":
    run_main(main)
