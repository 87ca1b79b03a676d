"""The part of torchrec.distributed.planner.types that a shard estimator meets, where torchrec is not installed.

Names and fields as of torchrec 1.8; the tests run against torchrec itself where it is there.
"""

import abc
from dataclasses import dataclass
from typing import Any


@dataclass
class Perf:
    fwd_compute: float
    fwd_comms: float
    bwd_compute: float
    bwd_comms: float
    input_dist_comms: float = 0.0
    prefetch_compute: float = 0.0

    @property
    def total(self) -> float:
        return self.fwd_compute + self.bwd_compute + self.fwd_comms + self.bwd_comms + self.prefetch_compute


@dataclass
class Shard:
    size: list[int]
    offset: list[int]
    storage: Any = None
    perf: Perf | None = None
    rank: int | None = None


class ShardingOption:
    def __init__(
        self, name: str, tensor: Any, module: tuple[str, Any], input_lengths: list[float], batch_size: int,
        sharding_type: str, partition_by: str, compute_kernel: str, shards: list[Shard],
    ) -> None:  # fmt: skip
        self.name, self.tensor, self.module, self.input_lengths = name, tensor, module, input_lengths
        self.batch_size, self.sharding_type, self.partition_by = batch_size, sharding_type, partition_by
        self.compute_kernel, self.shards = compute_kernel, shards
        self.num_poolings: list[float] | None = None
        self.cache_load_factor: float | None = None


@dataclass
class ParameterConstraints:
    num_poolings: list[float] | None = None
    batch_sizes: list[int] | None = None


class Topology:
    def __init__(self, world_size: int, compute_device: str) -> None:
        self.world_size, self.compute_device = world_size, compute_device


class ShardEstimator(abc.ABC):
    @abc.abstractmethod
    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: Any) -> None: ...
