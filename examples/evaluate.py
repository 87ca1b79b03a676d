"""Evaluate two baselines with the fixed metrics: the analytical model, and the median latency per op with an interval.

    python examples/evaluate.py [--axis workload]

A model of yours takes their place: one dictionary of node type -> latencies per graph.
"""

from __future__ import annotations

import argparse

import pandas as pd
import torch

from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs

KEYS = ["node_type", "op_name", "segment"]
LEVELS = [0.05, 0.5, 0.95]


def main() -> None:
    """Print one row of metrics per baseline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="datasets")
    parser.add_argument("--axis", default="demo")
    args = parser.parse_args()
    train, test = (ExecutionGraphs(args.root, axis=args.axis, split=part) for part in ("train", "test"))
    analytical = [{t: graph[t].base_us for t in NODE_TYPES} for graph in test]

    nodes = pd.concat([step.nodes[[*KEYS, "latency_us"]].astype(dict.fromkeys(KEYS, str)) for step in train.steps])
    by_op = nodes.groupby(KEYS)["latency_us"]
    quantiles_us = pd.concat({level: by_op.quantile(level) for level in LEVELS}, axis=1).reset_index()
    medians, intervals = [], []
    for step, graph in zip(test.steps, test, strict=True):
        table = step.nodes[KEYS].astype(dict.fromkeys(KEYS, str)).merge(quantiles_us, on=KEYS, how="left")
        own = torch.tensor(table[LEVELS].to_numpy(float))  # [num_nodes, 3]
        given = {t: torch.where((us := own[graph[t].node_id]).isnan(), graph[t].base_us[:, None], us)
                 for t in NODE_TYPES}  # fmt: skip
        medians.append({t: us[:, 1] for t, us in given.items()})
        intervals.append({t: (us[:, 0], us[:, 2]) for t, us in given.items()})

    metrics = {
        "analytical": Evaluator(test).evaluate(analytical),
        "op median": Evaluator(test).evaluate(medians, intervals),
    }
    print(pd.DataFrame(metrics).round(4).to_string())


if __name__ == "__main__":
    main()
