"""What of a replica's state lies in parts over the replicas (Rajbhandari et al. 2020, ZeRO; Zhao et al. 2023, FSDP)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Sharded(StrEnum):
    """What replicas share instead of holding all of it: each stage of ZeRO, what it says and what those before it say.

    Bytes that a rank sends per step, of the parameters' P, with one micro-batch (Rajbhandari et al. 2020, section 7):
    2 P up to GRADIENTS, as an all-reduce has it; 3 P with PARAMETERS.
    """

    NOTHING = "nothing"
    OPTIMIZER = "optimizer"  # ZeRO-1: gradients reduce-scattered, own part updated, parameters all-gathered
    GRADIENTS = "gradients"  # ZeRO-2: reduce-scattered in every backward pass, layer by layer
    PARAMETERS = "parameters"  # ZeRO-3, FSDP2: all-gathered for every layer's forward and again for its backward


@dataclass(frozen=True)
class Sharding:
    """Settings of sharded data parallelism.

    Attributes:
        state: what is in parts.
        reshard_after_forward: with PARAMETERS: whole parameters are dropped after a layer's forward pass and gathered
            again; else they are kept until its backward pass (fully_shard's argument of that name).
    """

    state: Sharded = Sharded.NOTHING
    reshard_after_forward: bool = True

    @property
    def reduces_every_pass(self) -> bool:
        """Whether gradients leave the rank in every backward pass, so that none of a whole rank are added up."""
        return self.state in (Sharded.GRADIENTS, Sharded.PARAMETERS)

    @property
    def shards_update(self) -> bool:
        """Whether a rank updates a part only."""
        return self.state is not Sharded.NOTHING
