"""Rows become isolated nodes on their device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from research.pretraining.graphs import grouped, op_graphs
from tests.research.op_rows import A100, SIZES, V100, add_rows, product_rows


def test_a_graph_per_device_and_op_holds_every_row_once() -> None:
    rows = pd.concat([product_rows((A100, V100)), add_rows(A100)], ignore_index=True)
    made = list(op_graphs(rows))
    assert [g.graph.device_names[0] for g in made] == [A100, A100, V100]
    assert np.array_equal(np.sort(np.concatenate([g.places for g in made])), np.arange(len(rows)))


def test_nodes_are_calls_as_traces_tell_them() -> None:
    (made,) = op_graphs(product_rows((V100,)))
    nodes = made.graph.nodes[made.graph.nodes["node_type"] == "compute"]
    assert len(nodes) == len(SIZES)
    assert nodes["op_name"].astype(str).tolist() == ["aten::linear"] * len(SIZES)
    assert nodes["family"].astype(str).unique().tolist() == ["gemm"]
    assert nodes["input_dims"].astype(str).iloc[2] == "[[1024, 256], [512, 256]]"
    assert nodes["flops"].iloc[2] == 2.0 * 1024 * 512 * 256
    assert nodes["latency_us"].tolist() == [50.0, 100.0, 150.0, 200.0, 250.0, 300.0]


def test_nodes_hang_together_through_hardware_only() -> None:
    (made,) = op_graphs(add_rows())
    edges = made.graph.edges
    assert set(edges["relation"].astype(str)) == {"runs_on", "connects"}
    assert (edges["relation"] == "runs_on").sum() == 3


def test_positions_of_every_group_whatever_the_index() -> None:
    rows = pd.DataFrame({"device": ["b", "a", "b"], "op": ["mm", "mm", "mm"]}, index=[7, 7, 9])
    result = [(key, places.tolist()) for key, places in grouped(rows, ("device", "op"))]
    assert result == [(("a", "mm"), [1]), (("b", "mm"), [0, 2])]
