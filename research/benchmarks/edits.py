"""Edits of a recorded graph against recordings of the changed program: shapes, FLOPs, and the change of the step.

    python -m research.benchmarks edits

A's graph is edited without a look at B. Structure: of the nodes of the edited graph that have shapes, those that B's
graph has with equal shapes; FLOPs of all ops against B's. Time: the analytical model, whose constants have not seen the
workload, answers A and the edited A; measured is the step without the profiler, the mean over a run's recordings.
`difference`: predicted difference against the measured one; `ratio`: predicted ratio times A's measured step. Next to
them the trivial answers: time scales with the batch (with the bytes of an element), nothing changes. A change counts
where it is larger than the spread of the recordings of A and B together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticConstants, AnalyticPredictor
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import align_runs
from gnnperf.whatif import ChangeDtype, Edit, OpSelector, ScaleBatch, Straggler, apply
from gnnperf.whatif.edit import Edited, unedited
from research.benchmarks._frame import run_main
from research.benchmarks._recorded_graphs import DATASET, Graphs, folds, median_step_us, recorded_graphs, recordings
from research.evaluation.pairs import PAIRS
from research.evaluation.repeats import RepeatOp, repeated_calls

BATCH = re.compile(r"_b(\d+)(?=_)")
RANKS_ALIKE = "_b2_fsdp"  # as many sequences as ranks: what the first run of the benchmark brought to light
LOW = "_bfloat16"
HALVED = 0.5


@dataclass(frozen=True)
class EditPair:
    """B is A with one known change.

    Attributes:
        kind: batch, dtype, slow rank.
        a, b: names of the runs.
        edits: what makes A's graph B's.
        trivial: B's step / A's step without any model: as the batch, as the bytes of an element; slow rank: unknown, 1.
        seen: whether the rules of the edit were written with this pair at hand.
    """

    kind: str
    a: str
    b: str
    edits: tuple[Edit, ...]
    trivial: float
    seen: bool


def edit_pairs(runs: set[str], graphs: Graphs) -> list[EditPair]:
    """Every pair, batch in both directions; `graphs` by name of recording."""
    listed = _listed()
    return [*shape_pairs(runs), *_slow_rank(listed, graphs)]


def shape_pairs(runs: set[str]) -> list[EditPair]:
    """Those of batch and dtype."""
    return [*_batch(runs, {(str(p["a"]), str(p["b"])) for p in _listed()}), *_dtype(runs)]


def _listed() -> list[dict[str, object]]:
    result: list[dict[str, object]] = json.loads((DATASET / PAIRS).read_text())["pairs"]
    return result


def _batch(runs: set[str], seen: set[tuple[str, str]]) -> Iterator[EditPair]:
    """Names that differ in `_b<batch>` by itself."""
    alike: dict[str, dict[int, str]] = {}
    for run in sorted(runs):
        if match := BATCH.search(run):
            alike.setdefault(BATCH.sub("_b", run), {})[int(match[1])] = run
    for sizes in alike.values():
        for small, a in sizes.items():
            for large, b in sizes.items():
                if small != large:
                    factor = large / small
                    known = (a, b) in seen or (b, a) in seen or any(RANKS_ALIKE in run for run in (a, b))
                    yield EditPair("batch", a, b, (ScaleBatch(factor),), factor, known)


def _dtype(runs: set[str]) -> Iterator[EditPair]:
    for run in sorted(runs):
        if LOW in run and run.replace(LOW, "") in runs:
            edit = ChangeDtype("float32", "bfloat16")
            yield EditPair("dtype", run.replace(LOW, ""), run, (edit,), HALVED, True)


def _slow_rank(listed: list[dict[str, object]], graphs: Graphs) -> Iterator[EditPair]:
    """Which calls of the op are repeated is read off the order of ops in B (no times); all else is declared."""
    for pair in listed:
        edit = pair["edit"]
        if pair["kind"] != "slow_rank" or not isinstance(edit, dict) or "times" not in edit:
            continue
        a, b = str(pair["a"]), str(pair["b"])
        calls = OpSelector(edit["op"], ranks=(edit["rank"],))
        result = repeated_calls(graphs[f"{a}/1"], graphs[f"{b}/1"], calls, edit["times"])
        yield EditPair("slow rank", a, b, tuple(RepeatOp(which, edit["times"]) for which, _ in result), 1.0, False)


SAME_FLOPS = 1e-3  # relative


@dataclass(frozen=True)
class Outcome:
    """One pair.

    Attributes:
        pair: which.
        equal: share of the edited nodes with shapes whose counterpart in B has equal shapes.
        flops: FLOPs of the edited graph / B's; same_flops: share of matched nodes with equal FLOPs.
        a_us, b_us: measured steps; noise_us: spread of their recordings.
        predicted_a_us, predicted_b_us: predicted steps.
    """

    pair: EditPair
    equal: float
    flops: float
    same_flops: float
    a_us: float
    b_us: float
    noise_us: float
    predicted_a_us: float
    predicted_b_us: float

    @property
    def measured_us(self) -> float:
        """The change."""
        return self.b_us - self.a_us

    def error(self, predicted_us: float) -> float:
        """Of a predicted change, relative to the measured one."""
        return abs(predicted_us - self.measured_us) / abs(self.measured_us)

    @property
    def errors(self) -> tuple[float, float, float]:
        """By difference, by ratio, of the trivial answer."""
        ratio_us = (self.predicted_b_us / self.predicted_a_us - 1.0) * self.a_us
        return (self.error(self.predicted_b_us - self.predicted_a_us), self.error(ratio_us),
                self.error((self.pair.trivial - 1.0) * self.a_us))  # fmt: skip


def predicted_step_us(edited: Edited, constants: AnalyticConstants) -> float:
    """Step time that the analytical model and the edits' declarations give."""
    graph = edited.graph
    results = AnalyticPredictor(constants).predict(graph, cluster_for(graph, None, None))
    return median_step_us(replace(results, latency_us=edited.latency_change.of(results.latency_us)))


def straggler(graph: ExecutionGraph, repeated: ExecutionGraph, constants: AnalyticConstants) -> Straggler:
    """The same change stated as a user would without naming ops: one rank has so much more work than before."""
    work = [_work_us(each, constants) for each in (graph, repeated)]
    growth = {rank: work[1][rank] / work[0][rank] for rank in graph.ranks}
    rank = max(growth, key=lambda rank: growth[rank])
    return Straggler(rank, growth[rank])


def _work_us(graph: ExecutionGraph, constants: AnalyticConstants) -> dict[int, float]:
    """Rank -> predicted time in its host and device work."""
    estimate_us = AnalyticPredictor(constants).predict(graph, cluster_for(graph, None, None)).latency_us
    works = graph.nodes["node_type"].isin(["host", "compute", "memory"]).to_numpy()
    rank = graph.nodes["rank"].to_numpy()
    return {one: float(np.nansum(estimate_us[works & (rank == one)])) for one in graph.ranks}


def structure(edited: ExecutionGraph, other: ExecutionGraph) -> tuple[float, float, float]:
    """Share of equal shapes, ratio of all FLOPs, share of equal FLOPs, in the second step of both."""
    mine, theirs = (graph.step(graph.steps[min(1, len(graph.steps) - 1)].step) for graph in (edited, other))
    matched = align_runs(mine, theirs)
    there = theirs.nodes.iloc[np.maximum(matched, 0)]
    dims, their_dims = (nodes["input_dims"].astype(object).to_numpy() for nodes in (mine.nodes, there))
    has = mine.nodes["input_dims"].notna().to_numpy()
    same = has & (matched >= 0) & (dims == their_dims)
    flops, their_flops = mine.nodes["flops"].to_numpy(), there["flops"].to_numpy()
    known = (matched >= 0) & np.isfinite(flops) & np.isfinite(their_flops)
    close = np.isclose(flops[known], their_flops[known], rtol=SAME_FLOPS)
    ratio = float(np.nansum(flops) / np.nansum(theirs.nodes["flops"].to_numpy()))
    return float(same.sum() / has.sum()), ratio, float(close.mean())


def outcomes(graphs: Graphs) -> list[Outcome]:
    """Every pair, from the first recording of A."""
    results = recordings()
    constants = {fold.workload: fold.shared for fold in folds(results, graphs)}
    steps: dict[str, list[float]] = {}
    for recording in results.values():
        steps.setdefault(recording.run, []).append(recording.unprofiled_us)
    result = []
    for pair in edit_pairs(set(steps), graphs):
        graph, own = graphs[f"{pair.a}/1"], constants[results[f"{pair.a}/1"].workload]
        edited = apply(graph, pair.edits)
        variants = [(pair, edited)]
        if pair.kind == "slow rank":
            slower = straggler(graph, edited.graph, own)
            variants.append((replace(pair, kind="straggler", edits=(slower,)), slower(graph)))
        result += [Outcome(
            which, *structure(changed.graph, graphs[f"{pair.b}/1"]), float(np.mean(steps[pair.a])),
            float(np.mean(steps[pair.b])), float(np.ptp(steps[pair.a]) + np.ptp(steps[pair.b])),
            predicted_step_us(unedited(graph), own), predicted_step_us(changed, own),
        ) for which, changed in variants]  # fmt: skip
    return result


def main() -> None:
    """Print a row per pair, then the summary."""
    results = outcomes(recorded_graphs())
    console = Console(width=160)
    console.print(_pairs(results))
    console.print(_summary(results))


def _pairs(results: list[Outcome]) -> Table:
    heads = ("A", "B", "shapes %", "FLOPs/B", "measured", "predicted us", "error: difference %", "ratio", "trivial")
    table = Table(*heads)
    for one in results:
        table.add_row(
            one.pair.a,
            one.pair.b,
            f"{100 * one.equal:.1f}",
            f"{one.flops:.3f}",
            f"{one.measured_us:+.0f}",
            f"{one.predicted_b_us - one.predicted_a_us:+.0f}",
            *(f"{100 * e:.0f}" for e in one.errors),
        )
    return table


def _summary(results: list[Outcome]) -> Table:
    table = Table("kind", "pairs", "shapes equal %: mean (least)", "FLOPs equal %", "FLOPs off %: mean (most)",
                  "changes above noise", "sign right", "error % (median): difference", "ratio", "trivial",
                  "nothing")  # fmt: skip
    groups = {
        "batch, rules written with it": [o for o in results if o.pair.kind == "batch" and o.pair.seen],
        "batch, not looked at": [o for o in results if o.pair.kind == "batch" and not o.pair.seen],
        "dtype (mixed)": [o for o in results if o.pair.kind == "dtype"],
        "slow rank, op repeated": [o for o in results if o.pair.kind == "slow rank"],
        "slow rank, as a straggler": [o for o in results if o.pair.kind == "straggler"],
    }
    for name, group in groups.items():
        equal, off = np.array([o.equal for o in group]), np.abs(np.array([o.flops for o in group]) - 1.0)
        loud = [o for o in group if abs(o.measured_us) > o.noise_us]
        right = sum((o.predicted_b_us > o.predicted_a_us) == (o.measured_us > 0) for o in loud)
        errors = np.median(np.array([o.errors for o in loud]), axis=0)  # [3]
        table.add_row(name, str(len(group)), f"{100 * equal.mean():.1f} ({100 * equal.min():.1f})",
                      f"{100 * np.mean([o.same_flops for o in group]):.1f}",
                      f"{100 * off.mean():.2f} ({100 * off.max():.2f})", str(len(loud)), f"{right}/{len(loud)}",
                      *(f"{100 * e:.1f}" for e in errors), "100.0")  # fmt: skip
    return table


if __name__ == "__main__":
    run_main(main)
