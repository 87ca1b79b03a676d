"""Waits for the last rank: what one recording of a program tells about the next, next to ignoring them.

    python -m research.benchmarks jitter

Jitter is fitted on first recordings of every other run (the machine's) or of the run itself; waits are measured in
second recordings of the other runs, on two ranks. What a rank is late by in every step is its role, and taken out. More
ranks than two: draws (what is left of a rank's work in a step) of all recordings together, against normal draws. Each
recording is in units of its own deviation, of eight values: draws far out cannot be seen.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.gnn.data.recordings import read_recordings
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.schedule import Jitter, Spread, arrival_lags_us, jitter_of
from gnnperf.schedule.jitter_pass import expected_excess
from research.benchmarks._recorded_graphs import CACHE

DATASET = Path("datasets/cpu-gloo")
KNOWN_CHANGES = ("sleep", "_on0", "_on1")  # runs that are disturbed on purpose
GROUPS = (2, 4, 8, 16)
DRAWS = 20_000


@dataclass(frozen=True)
class Waited:
    """Of one run, per transfer: how much later than the mean the last of two ranks comes, and what was predicted."""

    run: str
    measured_us: float
    predicted_us: float
    step_us: float


def measured_wait_us(graph: ExecutionGraph) -> float:
    """Mean over transfers and steps of last - mean arrival, without what a rank is late by in every step."""
    nodes = graph.nodes
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    rows = nodes.loc[joins["src"], ["rank", "step", "start_us"]].assign(transfer=joins["dst"].to_numpy())
    rows = rows[(rows["step"] >= 0).to_numpy() & (nodes.loc[joins["src"], "segment"] == Segment.ARRIVE).to_numpy()]
    rows["place"] = rows.groupby(["rank", "step"])["start_us"].rank(method="first")
    rows["late_us"] = rows["start_us"] - rows.groupby("transfer")["start_us"].transform("mean")
    by_place = rows.groupby(["rank", "place"])["late_us"]
    steps = by_place.transform("size")
    left = (rows["late_us"] - by_place.transform("mean")) * np.sqrt(steps / np.maximum(steps - 1, 1))
    return float(left.groupby(rows["transfer"]).max().mean())


def predicted_wait_us(graph: ExecutionGraph, jitter: Jitter) -> float:
    """Mean over transfers, with the latencies of the graph's second step."""
    step = graph.step(graph.steps[1].step).for_predictors()
    lag_us = np.nan_to_num(step.edges["lag_us"].to_numpy())
    latency_us = np.nan_to_num(step.nodes["latency_us"].to_numpy())
    waits = arrival_lags_us(step, latency_us, lag_us, jitter, repeats=True)
    joins = (step.edges["relation"] == Relation.JOINS).to_numpy()
    return float(pd.Series(waits[joins]).groupby(step.edges["dst"].to_numpy()[joins]).first().mean())


def left_over(graph: ExecutionGraph) -> np.ndarray:
    """[num_ranks x num_steps] own work of a rank in a step, less rank's and step's mean, in units of its deviation."""
    nodes = graph.nodes
    own = nodes["node_type"].isin([str(t) for t in (NodeType.HOST, NodeType.COMPUTE)]) & (nodes["step"] >= 0)
    total = nodes[own].groupby(["rank", "step"])["latency_us"].sum().unstack().to_numpy()  # noqa: PD010
    left = total - total.mean(axis=1, keepdims=True) - total.mean(axis=0, keepdims=True) + total.mean()
    degrees = (left.shape[0] - 1) * (left.shape[1] - 1)
    scale = np.sqrt((left**2).sum() / degrees) * np.sqrt(degrees / left.size)
    return (left / scale).ravel() if scale > 0 else np.zeros(0)


def pooled(given: Sequence[Jitter]) -> Jitter:
    """One machine's jitter: medians over recordings, of which some were disturbed, and each has a handful of steps."""

    def spread(part: str) -> Spread:
        own = [getattr(each, part) for each in given]
        return Spread(*(float(np.median([getattr(s, name) for s in own])) for name in ("rank_share", "moment_us")))

    return Jitter(spread("host"), spread("device"))


def main(argv: list[str]) -> int:
    """Print waits of two ranks, then maxima of more; a number takes every n-th run."""
    warnings.simplefilter("ignore", RuntimeWarning)
    runs = {name: list(repeats.values()) for name, repeats in read_recordings(DATASET).items()
            if "_x2_" in name and not any(word in name for word in KNOWN_CHANGES) and len(repeats) > 1}  # fmt: skip
    chosen = list(runs)[:: int(argv[0]) if argv else 1]
    firsts = {name: load_graph(runs[name][0].path, CACHE) for name in chosen}
    own = {name: jitter_of(graph) for name, graph in firsts.items()}
    machine = pooled([own[name] for name in chosen[::2]])
    print(f"jitter of the machine, from {len(chosen[::2])} recordings: {machine}")
    result: dict[str, list[Waited]] = {"the machine's jitter": [], "that of the run's first recording": []}
    draws = []
    for name in chosen[1::2]:
        second = load_graph(runs[name][1].path, CACHE)
        measured_us, step_us = measured_wait_us(second), float(np.median([s.makespan_us for s in second.steps]))
        draws.append(left_over(second))
        for which, jitter in zip(result, (machine, own[name]), strict=True):
            result[which].append(Waited(name, measured_us, predicted_wait_us(firsts[name], jitter), step_us))
    for which, waits in result.items():
        _print_waits(which, [each for each in waits if np.isfinite(each.measured_us)])
    _print_maxima(np.concatenate(draws))
    return 0


def _print_waits(which: str, result: list[Waited]) -> None:
    measured, predicted, step = (np.array([getattr(each, name) for each in result])
                                 for name in ("measured_us", "predicted_us", "step_us"))  # fmt: skip
    measured, predicted = 100 * measured / step, 100 * predicted / step
    print(f"{which}, {len(result)} other runs; wait of a transfer for the later rank, % of the step:")
    for name, values in (("measured", measured), ("predicted", predicted)):
        print(f"  {name:10s} mean {values.mean():.2f}, median {np.median(values):.2f}, largest {values.max():.2f}")
    print(f"  mean error {np.abs(predicted - measured).mean():.2f}, ignoring waits {measured.mean():.2f}; "
          f"median {np.median(np.abs(predicted - measured)):.2f}, ignoring {np.median(measured):.2f}; "
          f"nearer than ignoring in {np.mean(np.abs(predicted - measured) < measured):.0%}")  # fmt: skip


def _print_maxima(draws: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    print(f"expected maximum of M draws, in deviations, of {len(draws)}; the largest is {draws.max():.2f}:")
    for count in GROUPS:
        seen = rng.choice(draws, size=(DRAWS, count)).max(axis=1).mean()
        print(f"  M = {count:2d}: {seen:.2f}, normal {expected_excess(count):.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
