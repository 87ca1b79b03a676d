"""Residual networks that never ran: from a configuration to the graph of a step."""

from gnnperf.generate.convolutional.build import build_network, replica_tensors
from gnnperf.generate.convolutional.plan import (
    Block,
    ConvolutionalPlan,
    Gradients,
    Network,
    NetworkOptimizer,
    NetworkReplicas,
    Training,
    convolutional_from,
)

__all__ = [
    "Block",
    "ConvolutionalPlan",
    "Gradients",
    "Network",
    "NetworkOptimizer",
    "NetworkReplicas",
    "Training",
    "build_network",
    "convolutional_from",
    "replica_tensors",
]
