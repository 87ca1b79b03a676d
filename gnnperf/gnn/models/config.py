"""What can be said about the network (conf/model)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.core import require

MAX_RESIDUAL = 20.0  # a factor of 5e8


@dataclass
class ModelConfig:
    """The typed graph network (not frozen: Hydra composes into it).

    Attributes:
        hidden_channels: width of every node's state.
        num_layers: rounds of message passing; 0 is a multi-layer perceptron per node.
        dropout: share of the state dropped in training.
        op_dropout: share of words replaced by the unknown word in training, so that its embedding means something.
        max_residual: largest |log(latency / base)| the network may answer.
        reverse: messages also run against the relations, with weights of their own, so that a node knows what follows.
        hardware_nodes: device and link nodes send what they are to the work on them.
    """

    hidden_channels: int = 64
    num_layers: int = 6
    dropout: float = 0.05
    op_dropout: float = 0.05
    max_residual: float = 5.0
    reverse: bool = True
    hardware_nodes: bool = True

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(1 <= self.hidden_channels <= 4096, "model.hidden_channels", self.hidden_channels, "1 to 4096")
        require(0 <= self.num_layers <= 64, "model.num_layers", self.num_layers, "0 to 64")
        require(0 <= self.dropout < 1, "model.dropout", self.dropout, "0 <= dropout < 1")
        require(0 <= self.op_dropout < 1, "model.op_dropout", self.op_dropout, "0 <= op_dropout < 1")
        fine = 0 < self.max_residual <= MAX_RESIDUAL
        require(fine, "model.max_residual", self.max_residual, f"0 < max_residual <= {MAX_RESIDUAL:g}")

    @property
    def num_hops(self) -> int:
        """How many relations away the farthest node is that an answer depends on."""
        return self.num_layers
