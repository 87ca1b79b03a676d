"""Which link a node crosses: parts of a collective cross links, the collective crosses what they cross."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from synthetic import cluster
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation
from gnnperf.gnn.data.numbers import link_numbers
from gnnperf.hardware.spec import LinkSpec


def test_a_collective_crosses_the_slowest_link_of_its_parts() -> None:
    """Rank 0 hears of the link in the machine only, rank 1 of both; node 3 is another collective, without links."""
    arrive = {"node_type": NodeType.COMM, "segment": "arrive", "latency_us": 0.0, "collective": "all_reduce"}
    whole = {"node_type": NodeType.COLLECTIVE, "rank": -1, "collective": "all_reduce", "latency_us": 5.0}
    link = {"node_type": NodeType.LINK, "rank": -1}
    rows = [{**arrive, "rank": 0}, {**arrive, "rank": 1}, whole, whole,
            {**link, "op_name": "intra"}, {**link, "op_name": "inter"}]  # fmt: skip
    edges = [(0, 2, Relation.JOINS), (1, 2, Relation.JOINS), (0, 4, Relation.CROSSES), (1, 4, Relation.CROSSES),
             (1, 5, Relation.CROSSES)]  # fmt: skip
    apart = replace(cluster(), inter=LinkSpec("ethernet", 1e9, 30.0))
    result = link_numbers(make_graph(rows, edges, ranks=(0, 1)), apart)
    inside, between = (
        [np.log(link.sustained_bytes_per_s), np.log1p(link.latency_us)] for link in (apart.intra, apart.inter)
    )
    assert result[:4].tolist() == [[*inside, 0.0], [*between, 1.0], [*between, 1.0], [0.0, 0.0, 0.0]]
