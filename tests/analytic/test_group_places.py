"""Collectives by where their groups are: the machines they really span."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.schema import NodeType
from gnnperf.graph.tables import node_table
from gnnperf.hardware import ClusterSpec, load_cluster

BYTES = 1e9


def _us(cluster: ClusterSpec, size: int, first: int, stride: int) -> float:
    """An all-reduce; rank numbers of the group as given."""
    nodes = node_table(
        1, node_type=str(NodeType.COLLECTIVE), collective="all_reduce", message_bytes=BYTES, group_size=size,
        group_first=first, group_stride=stride,
    )  # fmt: skip
    return float(AnalyticPredictor().latency_us(nodes, cluster)[0])


def test_replicas_of_machines_have_one_adapter_each() -> None:
    """16 groups of 8 ranks, one of each machine: as one rank on each of 8 machines, not as 8 ranks of one machine."""
    cluster = load_cluster("dgx_a100")  # 8 ranks per machine
    apart = _us(cluster, 8, 0, 8)
    assert apart == _us(replace(cluster, ranks_per_node=1), 8, -1, -1)
    share = 2 * 7 / 8 * BYTES / cluster.inter.sustained_bytes_per_s * 1e6
    assert apart > 0.8 * share > 3 * _us(cluster, 8, 0, 1)


def test_groups_that_fill_machines_are_as_before() -> None:
    cluster = load_cluster("dgx_a100")
    for size in (2, 4, 8, 16, 24):
        assert _us(cluster, size, 0, 1) == _us(cluster, size, -1, -1)


def test_neighbors_on_two_machines_talk_over_the_network() -> None:
    cluster = load_cluster("dgx_a100")
    assert _us(cluster, 2, 7, 1) > 2 * _us(cluster, 2, 6, 1)
    assert np.isfinite(_us(cluster, 2, 7, 1))
