"""From a recording to its graph: as recorded, or without what the profiler itself adds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gnnperf.evaluate.recordings import CARD, Recording, read_json
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.profiler_cost import cost_of_card, without_profiler
from gnnperf.graph.storage import load_graph

Load = Callable[[Recording], ExecutionGraph]


def as_recorded(cache_dir: Path | None = None) -> Load:
    """Graphs with the profiler's cost in them.

    Args:
        cache_dir: where graphs are kept; None builds anew.
    """
    return lambda recording: load_graph(recording.path, cache_dir)


def without_profiler_cost(load: Load) -> Load:
    """Graphs of `load` without the profiler's cost, as far as a recording's card says how much that is."""

    def corrected(recording: Recording) -> ExecutionGraph:
        cost = cost_of_card(read_json(recording.path / CARD))
        graph = load(recording)
        return graph if cost is None else without_profiler(graph, cost).graph

    return corrected


def knows_profiler_cost(recording: Recording) -> bool:
    """Whether the card of a recording says what the profiler cost."""
    return cost_of_card(read_json(recording.path / CARD)) is not None
