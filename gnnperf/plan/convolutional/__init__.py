"""Residual networks that nobody ran: from a configuration to the graph of a step."""

from gnnperf.plan.convolutional.build import build_network
from gnnperf.plan.convolutional.memory import replica_tensors
from gnnperf.plan.convolutional.plan import (
    Block,
    ConvolutionalPlan,
    Gradients,
    Network,
    Optimizer,
    Replicas,
    Training,
)
from gnnperf.plan.convolutional.read import convolutional_from

__all__ = [
    "Block",
    "ConvolutionalPlan",
    "Gradients",
    "Network",
    "Optimizer",
    "Replicas",
    "Training",
    "build_network",
    "convolutional_from",
    "replica_tensors",
]
