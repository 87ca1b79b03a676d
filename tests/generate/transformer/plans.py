"""Small plans that the tests share, and what tests request of their graphs."""

from collections import Counter
from collections.abc import Mapping
from itertools import product, starmap
from typing import Any

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType, OpFamily
from gnnperf.generate.transformer.memory import Role, RoleMap, rank_of
from gnnperf.generate.transformer.plan import Parallelism, Pipeline, Schedule, Transformer, TransformerPlan
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import default_cluster, load_device
from gnnperf.schedule import schedule, schedule_with_contention

MODEL = Transformer(layers=4, hidden=256, heads=4, sequence=128, vocabulary=1000)


def small(
    tensor: int = 1, pipeline: int = 1, data: int = 1, *, batch: int = 4,
    micro_batch: int = 1, order: Pipeline = Pipeline.ONE_F_ONE_B, **settings: Any,
) -> TransformerPlan:  # fmt: skip
    """`batch` micro-batches of `micro_batch` samples per replica."""
    ways = Parallelism(tensor, pipeline, data)
    return TransformerPlan("small", MODEL, ways, Schedule(batch * data * micro_batch, micro_batch, order, **settings))


def every_rank(ways: Parallelism) -> RoleMap:
    """All ranks, each for itself."""
    roles = starmap(Role, product(range(ways.pipeline), range(ways.data_context), range(ways.tensor)))
    ranks = {rank_of(role, ways): role for role in roles}
    return RoleMap(ranks, dict.fromkeys(ranks, 1))


def step_us(graph: ExecutionGraph) -> float:
    """As the analytical model and the schedule have it, on A100s."""
    given = AnalyticPredictor().predict(graph, default_cluster(load_device("a100_sxm_80gb")))
    assert given.isolated is not None
    assert np.isfinite(given.latency_us).all()
    scheduled = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated)
    return scheduled.schedule.makespan_us


def transfers(graph: ExecutionGraph) -> Counter[tuple[str, float, int]]:
    """(kind, bytes of a rank's input, group size) -> how many."""
    result = graph.nodes[(graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()]
    return Counter(zip(result["collective"], result["message_bytes"], result["group_size"], strict=True))


def product_flops(graph: ExecutionGraph) -> float:
    """Of matrix products; fused attention is not one."""
    nodes = graph.nodes
    return float(nodes["flops"][(nodes["family"] == OpFamily.GEMM).to_numpy()].sum())


def sent_bytes(graph: ExecutionGraph) -> float:
    """What a rank puts on the wire, rings and pairwise exchanges (gnnperf.hardware.collective_terms)."""
    share = {"all_reduce": lambda n: 2 * (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n,
             "all_gather": lambda n: n - 1, "all_to_all": lambda n: (n - 1) / n}  # fmt: skip
    return float(sum(share[kind](n) * size * many for (kind, size, n), many in transfers(graph).items()))


def with_times(
    graph: ExecutionGraph, ops_us: Mapping[str, float], kinds_us: Mapping[str, float], copies_us: Mapping[str, float]
) -> float:
    """The makespan where device work of some ops takes so long, transfers and copies so long per byte, the rest none.

    Args:
        graph: of one step.
        ops_us: op -> us of its kernel.
        kinds_us: kind of collective -> us per byte.
        copies_us: name of a copy, or of work on the host -> us per byte.
    """
    nodes = graph.nodes
    kind, name = nodes["node_type"].to_numpy().astype(str), nodes["op_name"].astype(object)
    latency_us = np.where(kind == NodeType.COMPUTE, name.map(ops_us).fillna(0.0).astype(float), 0.0)
    per_byte = nodes["collective"].astype(object).map(kinds_us).fillna(0.0).astype(float).to_numpy()
    moved_us = np.nan_to_num(nodes["message_bytes"].to_numpy()) * per_byte
    latency_us = np.where(kind == NodeType.COLLECTIVE, moved_us, latency_us)
    label = nodes["event_name"].astype(object).where((kind == NodeType.MEMORY), name)
    copied = np.isin(kind, (NodeType.MEMORY, NodeType.HOST))
    rate = label.map(copies_us).fillna(0.0).astype(float).to_numpy()
    latency_us = np.where(copied, np.nan_to_num(nodes["bytes"].to_numpy()) * rate, latency_us)
    return schedule(graph, latency_us, np.zeros(len(graph.edges))).makespan_us
