"""Transfer a network to another machine: as it is, and scaled by some steps that the machine recorded.

    python examples/transfer.py [--graphs 8] [--epochs 20]

The network of train_gnn.py learns from one machine (cpu-gloo). Another machine (cpu-again) recorded the test part. The
first graphs of it give one scale per node type, and all models are evaluated on the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor
from train_gnn import predict, trained

from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs

Latencies = Sequence[dict[str, Tensor]]


def scales(graphs: ExecutionGraphs, latency_us: Latencies) -> dict[str, Tensor]:
    """Node type -> median of measured / predicted; 1 where nothing was measured."""
    result = {}
    for t in NODE_TYPES:
        pairs = [(graph[t].latency_us, given[t]) for graph, given in zip(graphs, latency_us, strict=True)]
        measured, predicted = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        ratios = (measured / predicted)[(measured > 0) & (predicted > 0)]
        result[t] = ratios.median() if len(ratios) else torch.ones(())
    return result


def main() -> None:
    """Print one row of metrics per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="datasets")
    parser.add_argument("--axis", default="demo")
    parser.add_argument("--to", default="cpu-again")
    parser.add_argument("--graphs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    train, test = (ExecutionGraphs(args.root, axis=args.axis, split=part, test_name=args.to)
                   for part in ("train", "test"))  # fmt: skip
    model = trained(train, args.epochs)
    models = {
        "analytical": [{t: graph[t].base_us.float() for t in NODE_TYPES} for graph in test],
        "network": [predict(model, graph) for graph in test],
    }
    num = args.graphs
    for name, latency_us in models.items():
        scale = scales(test[:num], latency_us[:num])
        scaled = [{t: us * scale[t] for t, us in given.items()} for given in latency_us[num:]]
        for row, given in ((name, latency_us[num:]), (f"{name}, scaled", scaled)):
            print(row, {key: round(value, 4) for key, value in Evaluator(test[num:]).evaluate(given).items()})


if __name__ == "__main__":
    main()
