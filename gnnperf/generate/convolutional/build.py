"""ConvolutionalPlan -> ExecutionGraph: one replica, which stands for all of them."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from gnnperf.generate.convolutional.network import network_passes
from gnnperf.generate.convolutional.plan import ConvolutionalPlan
from gnnperf.generate.convolutional.program import items, step_program
from gnnperf.generate.transformer import Parallelism
from gnnperf.generate.transformer.build import STEP_NAME
from gnnperf.generate.transformer.items import Placed
from gnnperf.generate.transformer.rank_nodes import rank_nodes
from gnnperf.generate.transformer.world_transfers import world_transfers
from gnnperf.graph import EdgeList, ExecutionGraph, StepLabel, add_hardware, concat_tables, content_keys

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
    tables = [t for t in (table, world_transfers(own, edges, plan.replicas.data)) if len(t)]
    nodes = concat_tables(tables)
    nodes = nodes.assign(node_id=np.arange(len(nodes)), step=np.zeros(len(nodes), np.int32))
    nodes = nodes.assign(blocked_us=np.full(len(nodes), np.nan), content_key=content_keys(nodes, _CONTENT))
    return _graph(plan, nodes, edges)


def _graph(plan: ConvolutionalPlan, nodes: pd.DataFrame, edges: EdgeList) -> ExecutionGraph:
    ranks, unknown = plan.replicas.data, (float("nan"),)
    sentences = (STANDS_FOR.format(ranks),) if ranks > 1 else ()
    graph = ExecutionGraph(
        name=plan.name, nodes=nodes, edges=edges.table(),
        steps=(StepLabel(0, STEP_NAME, None, float("nan"), unknown, unknown),), ranks=(0,), world_size=ranks,
        device_names=("",), counts={}, warnings=(*sentences, INPUTS), stands_for=(ranks,),
        fingerprint=hashlib.sha256(repr(plan).encode()).hexdigest(), cross_step=np.zeros((2, 0), dtype=np.int64),
    )  # fmt: skip
    return add_hardware(graph).validate()
