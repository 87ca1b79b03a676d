"""The second pass on held-out recordings: work next to transfers, and the step, with and without it.

Every node that ran next to a transfer takes the latency of the same work by itself in the same recording, every
all-reduce
next to other transfers what the recording's link probe says of its size by itself; all other latencies and all gaps
are as
recorded. The window is scheduled in one pass, and with the second; truth is the recording. Constants were fitted on
other recordings (split `run`, part train; two ranks). The trivial answer is one factor for all work that the recording
shows next to a transfer, and one for all transfers next to others, fitted on the same part.

x4: four ranks on two cores; nothing was fitted on them. All work there shares its core with another rank's, so none is
by itself, and only transfers are stretched; what ranks take from each other is judged by itself, in the last table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnperf.analytic import default_contention
from gnnperf.core import WORK_TYPES, NodeType
from gnnperf.gnn.data.recordings import Recording
from gnnperf.graph import ExecutionGraph, Isolated
from gnnperf.hardware import default_cluster, load_device, placed
from gnnperf.schedule import measured_latencies, schedule, schedule_with_contention
from research.benchmarks._contention import MIN_CPU_US, Compared, compared, cpu_recordings, probe_us, split_of
from research.benchmarks._core_sharing import extra_per_overlap

MIN_NODES = 4  # next to a transfer, of a recording that counts
TYPICAL: tuple[Callable[..., Any], ...] = (np.median, np.median, np.mean)  # of work, transfers, steps
ANSWERS = ("first pass", "one factor", "second pass")


@dataclass(frozen=True)
class Case:
    """One recording, with what is known of it by itself.

    Attributes:
        recording, result: where it is from; work next to transfers.
        transfer: [num_nodes] bool, all-reduces next to others, with a latency by itself.
        measured_us: [num_nodes] latencies as recorded; lag_us: [num_edges] gaps.
        isolated_us: [num_nodes] latencies only where they are known, else as recorded.
        in_place: [num_nodes] bool, next to a transfer, and nothing knows it by itself.
    """

    recording: Recording
    result: Compared
    transfer: np.ndarray
    measured_us: np.ndarray
    lag_us: np.ndarray
    isolated_us: np.ndarray
    in_place: np.ndarray

    @property
    def graph(self) -> ExecutionGraph:
        return self.result.graph


def case(recording: Recording, graph: ExecutionGraph) -> Case:
    """What of a recording is known by itself."""
    result, nodes = compared(graph, MIN_CPU_US), graph.nodes
    measured, lag = (np.nan_to_num(values) for values in measured_latencies(graph))
    reduces = (nodes["node_type"] == NodeType.COLLECTIVE) & (nodes["collective"] == "all_reduce")
    transfer = reduces.to_numpy() & (result.overlap_us > 0) & (measured > 0)
    start_up, per_byte = probe_us(recording)
    probed = start_up + per_byte * np.nan_to_num(nodes["message_bytes"].to_numpy())
    isolated = np.where(transfer, probed, np.where(result.known, result.isolated_us, measured))
    in_place = (result.overlap_us > 0) & ~result.known & ~transfer
    if _ranks_share_cores(graph):
        in_place |= (nodes["thread"] >= 0).to_numpy()
    return Case(recording, result, transfer, measured, lag, isolated, in_place)


def _ranks_share_cores(graph: ExecutionGraph) -> bool:
    core_sets = graph.placement.core_sets if graph.placement else ()
    return len({core for cores in core_sets for core in cores}) < len(core_sets)


def factors(cases: Sequence[Case]) -> tuple[float, float]:
    """(of work next to transfers, of transfers next to others): median of recorded / by itself."""
    ratios = [(c.measured_us / np.maximum(c.isolated_us, 1e-9), c.result.known, c.transfer) for c in cases]
    work, transfers = (np.concatenate([r[0][r[at]] for r in ratios]) for at in (1, 2))
    return float(np.median(work)), float(np.median(transfers))


def answers(c: Case, factor: tuple[float, float]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Answer -> (latencies [num_nodes], step times [num_steps])."""
    device = load_device("cpu_generic")
    cluster = placed(default_cluster(device), c.graph.placement, c.graph.world_size)
    ready = _rank_offsets(c.graph)
    one = np.select([c.transfer, c.result.known], [factor[1], factor[0]], 1.0) * c.isolated_us
    isolated = Isolated(~c.in_place, default_contention().on(cluster))
    second = schedule_with_contention(c.graph, c.isolated_us, c.lag_us, isolated, ready_us=ready)
    plain = {"measured": c.measured_us, "first pass": c.isolated_us, "one factor": one}
    given = {name: (us, _steps(c.graph, schedule(c.graph, us, c.lag_us, ready_us=ready).end_us))
            for name, us in plain.items()}  # fmt: skip
    return given | {"second pass": (second.latency_us, _steps(c.graph, second.schedule.end_us))}


def _rank_offsets(graph: ExecutionGraph) -> np.ndarray:
    first = graph.steps[0].rank_start_us
    start_of = {r: s - min(first) for r, s in zip(graph.ranks, first, strict=True)}
    return np.array([start_of.get(r, 0.0) for r in graph.nodes["rank"].tolist()])


def _steps(graph: ExecutionGraph, end_us: np.ndarray) -> np.ndarray:
    work = graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    step = graph.nodes["step"].to_numpy()
    completion = [end_us[work & (step == s.step)].max(initial=0.0) for s in graph.steps]
    return np.diff(np.maximum.accumulate(completion), prepend=0.0)


def errors(c: Case, factor: tuple[float, float]) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Answer -> relative errors of (work next to transfers, transfers next to others, steps)."""
    given = answers(c, factor)
    latency, steps = given["measured"]
    return {
        name: (
            given[name][0][c.result.known] / latency[c.result.known] - 1,
            given[name][0][c.transfer] / latency[c.transfer] - 1,
            given[name][1] / steps - 1,
        )
        for name in ANSWERS
    }


def table(cases: Sequence[Case], factor: tuple[float, float]) -> None:
    """One line per link and number of ranks."""
    head = ("recordings", "n", "work", "transfers", *(f"{what}, {a}" for what in ("work", "transfers", "step")
                                                      for a in ANSWERS))  # fmt: skip
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    result = [(c, errors(c, factor)) for c in cases]
    names = sorted({_group(c) for c in cases})
    two = ("all, two ranks",) if any(c.recording.world_size == 2 for c in cases) else ()
    for name in (*names, *two):
        mine = [e for c, e in result if _group(c) == name or (name.startswith("all") and c.recording.world_size == 2)]
        all_of = {(a, k): np.concatenate([e[a][k] for e in mine]) for a in ANSWERS for k in range(3)}
        records = [_record(all_of[a, k], typical) for k, typical in enumerate(TYPICAL) for a in ANSWERS]
        counts = [len(mine), *(len(all_of["first pass", k]) for k in range(2))]
        print(f"| {name} | {' | '.join(map(str, counts))} | {' | '.join(records)} |")


def _group(c: Case) -> str:
    return f"{c.recording.link}, x{c.recording.world_size}"


def _record(error: np.ndarray, typical: Callable[[np.ndarray], float]) -> str:
    """Typical |error| / p90 / signed median."""
    if not len(error):
        return "-"
    size = np.abs(error)
    return f"{typical(size):.1%} / {np.quantile(size, 0.9):.1%} / {np.median(error):+.1%}"


def main() -> None:
    """Print the constants, the trivial factors and the tables of parts val and test."""
    part = split_of("run")
    by_part: dict[str, list[Case]] = {"train": [], "val": [], "test": []}
    shared: list[tuple[Recording, ExecutionGraph]] = []
    for recording, graph in cpu_recordings():
        if _ranks_share_cores(graph):
            shared.append((recording, graph))
        if recording.name in part:
            one = case(recording, graph)
            if one.result.known.sum() + one.transfer.sum() >= MIN_NODES:
                by_part[part[recording.name]].append(one)
    two = [c for c in by_part["train"] if c.recording.world_size == 2]
    factor = factors(two)
    print(default_contention().cpu)
    print(f"trivial: work beside transfers x {factor[0]:.3f}, transfers beside others x {factor[1]:.3f}")
    print("each cell: median |error| (steps: mean) / p90 / signed median")
    for name in ("val", "test"):
        print(f"\n{name}")
        table(by_part[name], factor)
    print("\nfour ranks, part train (nothing was fitted on them)")
    table([c for c in by_part["train"] if c.recording.world_size == 4], factor)
    print("\ntwo ranks on each core, beside no transfer: fair sharing gives 0.5 us of extra time per us together")
    for recording, graph in shared:
        count, extra, ratio = extra_per_overlap(graph)
        print(f"  {recording.name}: {count} ops, {extra:.2f} us per us, median latency / alone {ratio:.2f}")


if __name__ == "__main__":
    main()
