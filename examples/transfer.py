"""Transfer a network to another machine: as it is, and trained on with some steps that the machine recorded.

    python examples/transfer.py [--graphs 8] [--epochs 20]

The network of train_gnn.py learns from one machine (cpu-gloo). Another machine (cpu-again) recorded the test part. Some
graphs of it, drawn at random, train the network on, and all models are evaluated on the others.
"""

from __future__ import annotations

import argparse

from train_gnn import predict, trained

from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs

SLOWER = 1e-3  # learning rate


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
    network = trained(train, args.epochs)
    test = test.shuffle()  # neighbors are runs of one program; the seed is that of the training
    shared, others = test[: args.graphs], test[args.graphs :]
    tuned = trained(shared, args.epochs, start=network, lr=SLOWER)
    rows = {
        "analytical": [{t: graph[t].base_us.float() for t in NODE_TYPES} for graph in others],
        "network": [predict(network, graph) for graph in others],
        f"network, tuned on {len(shared)} graphs": [predict(tuned, graph) for graph in others],
    }
    for name, latency_us in rows.items():
        print(name, {key: round(value, 4) for key, value in Evaluator(others).evaluate(latency_us).items()})


if __name__ == "__main__":
    main()
