"""ConvolutionalPlan -> ExecutionGraph: one replica, which stands for all of them."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.graph.hardware_nodes import add_hardware
from gnnperf.graph.tables import EdgeList, concat_tables, content_keys, node_table
from gnnperf.plan.convolutional.network import network_passes
from gnnperf.plan.convolutional.plan import ConvolutionalPlan
from gnnperf.plan.convolutional.program import items, step_program
from gnnperf.plan.transformer import Parallelism
from gnnperf.plan.transformer.build import STEP_NAME
from gnnperf.plan.transformer.items import Placed
from gnnperf.plan.transformer.rank_nodes import RankNodes, rank_nodes
from gnnperf.plan.transformer.rows import TRANSFER_OPS
from gnnperf.schema import NodeType, OpFamily, Relation

_CONTENT = ("node_type", "thread", "stream", "op_name", "segment", "event_name", "collective")
STANDS_FOR = "Ranks with the same role are in the graph once: one rank, for {}."
INPUTS = "Batches are taken to be on the device: loading and copying them is not part of the prediction."


def build_network(plan: ConvolutionalPlan) -> ExecutionGraph:
    """The graph of one step; every latency, start and lag is NaN. Collectives know the size of their group."""
    program = [Placed(item) for item in items(step_program(plan, network_passes(plan)))]
    own = rank_nodes(program, Parallelism(data=plan.replicas.data))
    table = own.table.assign(rank=np.zeros(len(own.table), np.int32))
    edges = EdgeList()
    edges.parts += own.edges.parts
    tables = [t for t in (table, _sums(plan, own, edges)) if len(t)]
    nodes = concat_tables(tables)
    nodes = nodes.assign(node_id=np.arange(len(nodes)), step=np.zeros(len(nodes), np.int32))
    nodes = nodes.assign(blocked_us=np.full(len(nodes), np.nan), content_key=content_keys(nodes, _CONTENT))
    return _graph(plan, nodes, edges)


def _sums(plan: ConvolutionalPlan, own: RankNodes, edges: EdgeList) -> pd.DataFrame:
    """[num_transfers] transfers, and their edges to the rank's parts."""
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
        group_size=np.full(len(parts), plan.replicas.data), group_first=0, group_stride=1,
    )  # fmt: skip


def _graph(plan: ConvolutionalPlan, nodes: pd.DataFrame, edges: EdgeList) -> ExecutionGraph:
    ranks, unknown = plan.replicas.data, (float("nan"),)
    said = (STANDS_FOR.format(ranks),) if ranks > 1 else ()
    graph = ExecutionGraph(
        name=plan.name, nodes=nodes, edges=edges.table(),
        steps=(StepLabel(0, STEP_NAME, None, float("nan"), unknown, unknown),), ranks=(0,), world_size=ranks,
        device_names=("",), counts={}, warnings=(*said, INPUTS), stands_for=(ranks,),
        fingerprint=hashlib.sha256(repr(plan).encode()).hexdigest(), carried=np.zeros((2, 0), dtype=np.int64),
    )  # fmt: skip
    return add_hardware(graph).validate()
