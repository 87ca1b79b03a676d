"""A trace made of ops that nothing has seen, without shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, NodeType, OpFamily, Source
from gnnperf.gnn import Step
from gnnperf.graph import ExecutionGraph, Predictor
from gnnperf.predict import Mode, assemble
from gnnperf.predict.intervals import question_about


def strange(graph: ExecutionGraph) -> ExecutionGraph:
    """Every op a Triton kernel or an op of one's own extension, of no known family, without shapes, FLOPs and bytes."""
    nodes = graph.nodes.copy()
    work = nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    compute = (nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    names = nodes["op_name"].astype(object)
    codes = pd.factorize(names)[0]
    new = np.where(codes % 2 == 0, [f"triton_poi_fused_{c}" for c in codes], [f"my_extension::op_{c}" for c in codes])
    nodes["op_name"] = pd.Categorical(np.where(work & names.notna().to_numpy(), new, names))
    nodes["family"] = pd.Categorical(np.where(compute, str(OpFamily.UNKNOWN), nodes["family"].astype(object)))
    nodes["input_dims"] = nodes["input_dims"].where(~pd.Series(compute, index=nodes.index))
    for size in ("flops", "bytes"):
        nodes[size] = np.where(compute, np.nan, nodes[size])
    return replace(graph, nodes=nodes)


def print_strange(predictor: Predictor, step: Step) -> None:
    """What comes of it: sources, reasons, the uncovered share next to the share of the kernels."""
    graph = strange(step.graph)
    answer = assemble(predictor.predict(graph, step.cluster), question_about(step, Mode.hybrid))
    prediction, nodes = answer.prediction, graph.nodes
    work = nodes["node_type"].isin(list(WORK_TYPES)).to_numpy()
    without = work & (np.array([not reason for reason in prediction.reasons]))
    compute_us = nodes.loc[nodes["node_type"] == NodeType.COMPUTE, "latency_us"].sum()
    right = compute_us / nodes["latency_us"].sum()
    counts = pd.Series(prediction.source[work].astype(str)).value_counts().to_dict()
    print(f"\n(b) ops never seen, without shapes ({step.run}): {int(work.sum())} nodes, sources {counts}")
    print(f"nodes without a reason: {int(without.sum())}; step time {answer.step_time_us:.0f} us, "
          f"lower bound: {answer.is_lower_bound}; uncovered share of the measured node time "
          f"{answer.uncovered_measured_share:.4f}, of compute nodes {right:.4f}")  # fmt: skip
    uncovered = pd.Series(prediction.reasons[prediction.source == Source.UNCOVERED]).value_counts()
    print("; ".join(f"{count} uncovered: {reason}" for reason, count in uncovered.head(3).items()))
