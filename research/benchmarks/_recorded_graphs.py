"""Graphs of an embedded data set without the profiler's cost, and the op tables of its machine."""

from __future__ import annotations

from pathlib import Path

from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.graph import ExecutionGraph
from research.evaluation.loading import as_recorded, machine_costs, without_profiler_cost

DATASET = Path("datasets/cpu-gloo")
OP_TABLES = tuple(Path(f"datasets/{name}/ops.parquet") for name in ("cpu-ops", "cpu-lookups", "cpu-updates"))
CACHE = Path("~/.cache/gnnperf").expanduser()


def recordings(dataset: Path = DATASET) -> dict[str, Recording]:
    """Name -> recording, of all that are complete."""
    return {r.name: r for repeats in read_recordings(dataset).values() for r in repeats.values()}


def recorded_graphs(dataset: Path = DATASET) -> dict[str, ExecutionGraph]:
    """Name of the recording -> its graph as predictors get it."""
    result = recordings(dataset)
    load = without_profiler_cost(as_recorded(CACHE), machine_costs(result.values()))
    return {name: load(recording).for_predictors() for name, recording in result.items()}
