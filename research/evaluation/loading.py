"""From a recording to its graph: as recorded, or without what the profiler itself adds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.gnn.data.recordings import CARD, Recording, read_json
from gnnperf.graph import ExecutionGraph, ProfilerCost, cost_of_card, load_graph, profiler_us

Load = Callable[[Recording], ExecutionGraph]


def as_recorded(cache_dir: Path | None = None) -> Load:
    """Graphs with the profiler's cost in them."""
    return lambda recording: load_graph(recording.path, cache_dir)


def machine_costs(recordings: Iterable[Recording]) -> dict[str, ProfilerCost]:
    """Machine -> what the profiler costs on it: the median over the cards that say so."""
    result: dict[str, list[ProfilerCost]] = {}
    for recording in recordings:
        cost = cost_of_card(read_json(recording.path / CARD))
        if cost is not None:
            result.setdefault(recording.machine, []).append(cost)
    return {machine: median_cost(costs) for machine, costs in result.items()}


def without_profiler_cost(load: Load, costs: Mapping[str, ProfilerCost]) -> Load:
    """Graphs of `load` without the profiler's cost, of machines of which it is known.

    The median of a machine, not each card's own: a single measurement is short, and may have been disturbed.
    """

    def corrected(recording: Recording) -> ExecutionGraph:
        cost, graph = costs.get(recording.machine), load(recording)
        return graph if cost is None else without_profiler(graph, cost)

    return corrected


def without_profiler(graph: ExecutionGraph, cost: ProfilerCost) -> ExecutionGraph:
    """Take the profiler's own cost out of host latencies, of ops on a CPU device, and of the start of host collectives.

    Measured starts and step labels are still those of the recording: schedule the graph to get others.
    """
    latency_us, lag_us = graph.nodes["latency_us"].to_numpy(), graph.edges["lag_us"].to_numpy()
    taken_us, lag_taken_us = profiler_us(graph, latency_us, lag_us, cost)
    return replace(
        graph,
        nodes=graph.nodes.assign(latency_us=latency_us - taken_us),
        edges=graph.edges.assign(lag_us=lag_us - lag_taken_us),
    )


def median_cost(costs: Sequence[ProfilerCost]) -> ProfilerCost:
    """The median of each kind over cards of one machine: a single measurement may have been disturbed."""
    table = [cost.by_kind() for cost in costs]
    result = {kind: float(np.median([row[kind] for row in table])) for kind in table[0]}
    return ProfilerCost(**result, provenance=f"median of {len(costs)} measurements")
