"""Evaluate two baselines with the fixed metrics: the analytical model, and the median latency per op.

    python examples/evaluate.py [--axis workload]

A model of yours takes their place: one dictionary of node type -> latencies per graph.
"""

from __future__ import annotations

import argparse

import pandas as pd
import torch

from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs

KEYS = ["node_type", "op_name", "segment"]


def main() -> None:
    """Print one row of metrics per baseline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="datasets")
    parser.add_argument("--axis", default="demo")
    args = parser.parse_args()
    train, test = (ExecutionGraphs(args.root, axis=args.axis, split=part) for part in ("train", "test"))
    analytical = [{t: graph[t].base_us for t in NODE_TYPES} for graph in test]

    nodes = pd.concat([step.nodes[[*KEYS, "latency_us"]].astype(dict.fromkeys(KEYS, str)) for step in train.steps])
    median_us = nodes.groupby(KEYS)["latency_us"].median().rename("median_us").reset_index()
    medians = []
    for step, graph in zip(test.steps, test, strict=True):
        table = step.nodes[KEYS].astype(dict.fromkeys(KEYS, str)).merge(median_us, on=KEYS, how="left")
        own = torch.tensor(table["median_us"].to_numpy(float))  # [num_nodes]
        given = {t: own[graph[t].node_id] for t in NODE_TYPES}
        medians.append({t: torch.where(us.isnan(), graph[t].base_us, us) for t, us in given.items()})

    rows = {"analytical": analytical, "op median": medians}
    metrics = {name: Evaluator(test).evaluate(latency_us) for name, latency_us in rows.items()}
    print(pd.DataFrame(metrics).T.round(4).to_string())


if __name__ == "__main__":
    main()
