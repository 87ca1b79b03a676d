"""Does the graph of A, plus a known change, predict B? The error of the change, not of the level.

    repeat i                             repeats k != i
    graph of A --edit--> schedule        B's step - A's step, without the profiler
    donor B: touched latencies only      measured change
    predicted change = edited - unedited

Prediction and measurement never share a recording. Touched nodes take the declared value, or their latency in B as
recorded in repeat i; everything else comes from A; B's waits and step time are never used in a prediction.

Which measured change? The medians of many steps WITHOUT the profiler: they are what a user of the program sees, there
are several times more of them than profiled steps, and the profiler's own cost is not in them. Recordings of one repeat
lie close in time, so B - A of the SAME repeat loses what the machine does slowly (clock, page cache); with several
repeats k != i the median of these differences counts. As recorded, an edit adds or removes the profiler's cost with the
nodes it adds or removes; so the cost should be taken out of the graphs first (`loading.without_profiler_cost`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, InputError, each
from gnnperf.gnn.data.recordings import Repeats
from gnnperf.gnn.evaluation.metrics import RESOLUTION_US
from gnnperf.graph import ExecutionGraph, take
from gnnperf.schedule import measured_latencies, schedule
from gnnperf.whatif import apply
from research.evaluation.loading import Load
from research.evaluation.pairs import Change, Pair, Way, edits
from research.evaluation.run_sums import interval_over_groups

KEPT_GRAPHS = 32


@dataclass(frozen=True)
class Trial:
    """One prediction of one change."""

    pair: int  # number of the pair
    kind: str  # of the change
    # source, target: runs; from A to B or from B to A
    source: str
    target: str
    repeat: int  # the repeat whose graphs were used
    predicted_us: float  # change of the step, median over the profiled steps
    measured_us: float  # change of the step without the profiler, in other repeats
    noise_us: float  # a change of this size may be chance
    summed_us: float  # the trivial prediction: what the edit adds to all nodes, divided among the ranks
    remeasured_us: float  # the change as measured in `repeat` itself: what measuring again predicts
    unknown: tuple[str, ...]  # what the edit states that it cannot know

    @property
    def error(self) -> float:
        """|predicted - measured| / |measured|."""
        return self._error(self.predicted_us)

    @property
    def summed_error(self) -> float:
        """The same for the trivial prediction."""
        return self._error(self.summed_us)

    @property
    def remeasured_error(self) -> float:
        """The same for a second measurement: what noise by itself makes of it."""
        return self._error(self.remeasured_us)

    def _error(self, change_us: float) -> float:
        return abs(change_us - self.measured_us) / max(abs(self.measured_us), RESOLUTION_US)

    @property
    def above_noise(self) -> bool:
        """Whether the measured change exceeds the noise floor."""
        return abs(self.measured_us) > self.noise_us

    @property
    def sign_right(self) -> bool:
        """Whether predicted and measured change have the same sign."""
        return self.predicted_us * self.measured_us > 0


@dataclass(frozen=True)
class LeftOut:
    """A pair that could not be tried, and why."""

    pair: Pair
    reason: str


def evaluate_pairs(
    pairs: Sequence[Pair], recordings: Mapping[str, Repeats], *, load: Load
) -> tuple[list[Trial], list[LeftOut]]:
    """Try every pair in both directions, from every repeat that leaves another one to measure by."""
    graphs, floor = _Graphs(load), relative_noise(recordings)
    trials: list[Trial] = []
    left_out: list[LeftOut] = []
    for number, pair in enumerate(each(pairs, "trying known changes", "pairs")):
        common = sorted(set(recordings.get(pair.a, {})) & set(recordings.get(pair.b, {})))
        if len(common) < 2:
            reason = f"{len(common)} repeats of both runs: one predicts, another measures"
            left_out.append(LeftOut(pair, reason))
            continue
        for forward in (True, False):
            try:
                trials += [_trial(number, pair, recordings, common, i, forward, graphs, floor) for i in common]
            except InputError as error:
                left_out.append(LeftOut(pair, f"{'A to B' if forward else 'B to A'}: {error}"))
    return trials, left_out


def relative_noise(recordings: Mapping[str, Repeats]) -> float:
    """Median over runs of |log(step / step of another repeat)|, without the profiler; NaN if nothing is repeated."""
    logs = [
        abs(np.log(first.unprofiled_us / second.unprofiled_us))
        for repeats in recordings.values()
        for at, first in enumerate(repeats.values())
        for second in list(repeats.values())[at + 1 :]
    ]
    return float(np.median(logs)) if logs else float("nan")


def step_times_us(graph: ExecutionGraph) -> np.ndarray:
    """[num_steps] period of each step of the window; the first one counts from the earliest rank's start.

    Scheduled from its own latencies and gaps, edited or not:

            C(0)        C(1)        C(2)
        ----|-----------|-----------|      unedited: exactly the recording
        ------|-------------|-------------|  edited: whatever slack there was is used up first

    Each rank begins its first step when it did. Steps follow each other through threads and streams, so that slack of
    one step may absorb what another one is late. Nodes without a measurement take the median of their class.

    Raises InputError: the graph has no whole step.
    """
    if not graph.steps:
        raise InputError("has no whole step", where=f"graph {graph.name!r}", remedy="record at least one whole step")
    work = graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    outside = work & ~graph.nodes["step"].isin([s.step for s in graph.steps]).to_numpy()  # a window may begin in a step
    nodes, edges = take(graph.nodes, graph.edges, ~outside) if outside.any() else (graph.nodes, graph.edges)
    inside, work = replace(graph, nodes=nodes, edges=edges), work[~outside]
    latency_us, lag_us = (np.nan_to_num(values) for values in measured_latencies(inside))
    first = graph.steps[0].rank_start_us
    start_of = {rank: start - min(first) for rank, start in zip(graph.ranks, first, strict=True)}
    ready_us = np.array([start_of.get(rank, 0.0) for rank in nodes["rank"].tolist()])  # [num_nodes] 0: of no rank
    end_us = schedule(inside, latency_us, lag_us, ready_us=ready_us).end_us
    step = nodes["step"].to_numpy()
    completion = np.array([end_us[work & (step == s.step)].max(initial=0.0) for s in graph.steps])  # [num_steps]
    return np.diff(np.maximum.accumulate(completion), prepend=0.0)


class _Graphs:
    """Graphs and their unedited step times, kept as long as the next pairs are likely to need them again."""

    def __init__(self, load: Load) -> None:
        self.graph = lru_cache(KEPT_GRAPHS)(load)
        self.step_times_us = lru_cache(None)(lambda recording: step_times_us(self.graph(recording)))


def _trial(
    number: int, pair: Pair, recordings: Mapping[str, Repeats], common: Sequence[int], repeat: int, forward: bool,
    graphs: _Graphs, floor: float,
) -> Trial:  # fmt: skip
    source, target = (pair.a, pair.b) if forward else (pair.b, pair.a)
    here, there = recordings[source], recordings[target]
    graph = graphs.graph(here[repeat])
    edited = apply(graph, edits(pair, Way(graph, graphs.graph(there[repeat]), forward)))
    change = step_times_us(edited.graph) - graphs.step_times_us(here[repeat])  # [num_steps]
    measured = {k: there[k].unprofiled_us - here[k].unprofiled_us for k in common}
    own = max(measured.values()) - min(measured.values())
    pooled = floor * np.hypot(*(np.median([r.unprofiled_us for r in run.values()]) for run in (here, there)))
    return Trial(
        pair=number, kind=str(pair.change), source=source, target=target, repeat=repeat,
        predicted_us=float(np.median(change)),
        measured_us=float(np.median([measured[k] for k in common if k != repeat])),
        noise_us=float(max(own, pooled)),
        summed_us=_busy_us(edited.graph) - _busy_us(graph),
        remeasured_us=measured[repeat],
        unknown=edited.unknown,
    )  # fmt: skip


def _busy_us(graph: ExecutionGraph) -> float:
    """Latencies of a step, summed: those of ranks divided among the ranks, those of collectives once."""
    latency, rank = np.nan_to_num(graph.nodes["latency_us"].to_numpy()), graph.nodes["rank"].to_numpy()
    inside = graph.nodes["step"].to_numpy() >= 0
    of_ranks = latency[inside & (rank >= 0)].sum() / len(graph.ranks)
    return float(of_ranks + latency[inside & (rank < 0)].sum()) / len(graph.steps)


# Trials by kind of change, for people and for programs.

ALL, WITHOUT_SLEEP = "all", "all without sleep"
PROPERTIES = ("error", "summed_error", "remeasured_error", "above_noise", "sign_right")


def table_of_trials(trials: Sequence[Trial]) -> pd.DataFrame:
    """A row per trial: its fields and errors."""
    return pd.DataFrame([{**asdict(t), **{name: getattr(t, name) for name in PROPERTIES}} for t in trials])


def summarize_trials(trials: Sequence[Trial]) -> pd.DataFrame:
    """One row per kind, then all of them, then all but the sleeps; NaN where there is nothing to sum up.

    kind, pairs, trials     a pair is tried in both directions and from several repeats
    error_*                 of |predicted - measured| / |measured|; low and high: 95 % of the median, over pairs
    above_noise             trials whose measured change exceeds the noise floor; sign_right: of these
    perfect_error_above_noise  of the true change: a second measurement errs by both, so by root 2 times as much
    summed_error_median     of the prediction without a graph: what the edit adds, summed, divided among the ranks
    remeasured_error_median of a second measurement as the prediction: the noise of the change itself
    """
    table = table_of_trials(trials)
    parts = [(str(kind), table[table["kind"] == kind]) for kind in Change]
    parts += [(ALL, table), (WITHOUT_SLEEP, table[table["kind"] != Change.SLEEP])]
    return pd.DataFrame([_summary(kind, part) for kind, part in parts if len(part)])


def _summary(kind: str, table: pd.DataFrame) -> dict[str, object]:
    loud = table[table["above_noise"]].astype({"sign_right": float})
    error_low, error_high = interval_over_groups(table["error"].to_numpy(), table["pair"].to_numpy(), np.median)
    return {
        "kind": kind, "pairs": table["pair"].nunique(), "trials": len(table), "error_median": table["error"].median(),
        "error_low": error_low, "error_high": error_high, "error_p90": table["error"].quantile(0.9),
        "above_noise": len(loud), "error_median_above_noise": loud["error"].median(),
        "sign_right": loud["sign_right"].mean(),
        "perfect_error_above_noise": loud["remeasured_error"].median() / np.sqrt(2.0),
        "summed_error_median": table["summed_error"].median(),
        "remeasured_error_median": table["remeasured_error"].median(),
    }  # fmt: skip
