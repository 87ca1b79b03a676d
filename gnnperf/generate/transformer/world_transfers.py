"""Transfers among all ranks of a planned step, of which one is in the graph: nodes, and edges to its parts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Relation
from gnnperf.generate.transformer.rank_nodes import RankNodes
from gnnperf.generate.transformer.rows import TRANSFER_OPS
from gnnperf.graph import EdgeList, node_table


def world_transfers(own: RankNodes, edges: EdgeList, num_ranks: int) -> pd.DataFrame:
    """[num_transfers] nodes, one per part of the rank; every rank takes part in each."""
    parts = own.parts
    if not parts:
        return node_table(0)
    node = len(own.table) + np.arange(len(parts))
    arrive = np.array([part.arrive for part in parts])
    edges.add(arrive, node, Relation.JOINS)
    edges.add(node, arrive + 1, Relation.RELEASES)
    return node_table(
        len(parts), node_type=str(NodeType.COLLECTIVE), family=str(OpFamily.COLLECTIVE),
        op_name=np.array([TRANSFER_OPS[part.transfer.kind] for part in parts], dtype=object),
        phase=np.array([str(part.transfer.phase) for part in parts], dtype=object),
        dtype=np.array([part.transfer.dtype for part in parts], dtype=object),
        collective=np.array([part.transfer.kind for part in parts], dtype=object),
        message_bytes=np.array([part.transfer.message_bytes for part in parts]),
        group_size=np.full(len(parts), num_ranks), group_first=0, group_stride=1,
    )  # fmt: skip
