"""Edge types: what every graph may have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES
from gnnperf.graph import load_graph

DATASET = Path(__file__).parents[3] / "datasets" / "cpu-gloo"


def one_of_each_kind() -> dict[str, str]:
    """Program and division of work -> the smallest recording of it in the embedded data set."""
    result: dict[str, tuple[int, str]] = {}
    for card in sorted(DATASET.glob("*/1/run.json")):
        about = json.loads(card.read_text())
        kind = " ".join([about["workload"], *sorted(about["parallelism"])])
        size = (card.parent / "events.parquet").stat().st_size
        result[kind] = min(result.get(kind, (size, card.parent.parent.name)), (size, card.parent.parent.name))
    return {kind: name for kind, (_, name) in result.items()}


SMALLEST = one_of_each_kind()


@pytest.mark.parametrize("kind", SMALLEST)
def test_graphs_of_recorded_runs_have_no_other(kind: str) -> None:
    graph = load_graph(DATASET / SMALLEST[kind] / "1")
    node_type = graph.nodes["node_type"].astype(str).to_numpy()
    src, dst = (node_type[graph.edges[end].to_numpy()] for end in ("src", "dst"))
    there = set(zip(src, graph.edges["relation"].astype(str), dst, strict=True))
    assert there and there <= set(FORWARD_EDGE_TYPES)
