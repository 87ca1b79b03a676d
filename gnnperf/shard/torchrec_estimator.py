"""A ShardEstimator for torchrec's planner: what a shard costs by the analytical model (extra: gnnperf[torchrec]).

    estimator = AnalyticShardEstimator(topology, hardware="h100_sxm")
    EmbeddingShardingPlanner(topology=topology, enumerator=EmbeddingEnumerator(topology, batch_size, estimator=[
        estimator, EmbeddingStorageEstimator(topology=topology)]))

It fills `shard.perf` in milliseconds, as torchrec's own estimator does (its bandwidths are bytes/ms): lookups forward
and backward without the launches that tables share, and vectors' way at the rate of long messages.
Only torchrec's types are needed, and only when something is estimated: this module imports without torchrec.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnperf.analytic import LAUNCHES, LOOK_UP, UPDATE, BatchedTable
from gnnperf.core import InputError, Phase, require
from gnnperf.generate import FLOAT_BYTES, STATES, Optimizer, batched_op, moves, radix_sort_bytes
from gnnperf.hardware import default_cluster, load_cluster, load_device, spread
from gnnperf.shard.problem import host_us, kernels_us
from gnnperf.shard.surrogate_cost import collectives_us

SUMMED, COPIED = "row_wise", "data_parallel"
DIVIDED = (SUMMED, "table_row_wise", "grid_shard")  # a shard has a part of the rows, and of the lookups
SHARDINGS = (*DIVIDED, COPIED, "table_wise", "column_wise", "table_column_wise")
CACHED, CACHED_SHARE = "fused_uvm_caching", 0.2  # torchrec: UVM_CACHING_RATIO
HOST_SHARE = {"dense": 0.0, "fused": 0.0, "fused_uvm": 1.0, CACHED: None}  # of lookups; None: without those cached
LONG_BYTES = (2.0**29, 2.0**30)  # messages between which the rate is taken
MS = 1e-3  # ms per us


@dataclass(frozen=True)
class _Requested:
    """One shard: what is looked up in it in a step, torchrec's name of its sharding, the share that the host holds."""

    table: BatchedTable
    sharding: str
    host_share: float


class AnalyticShardEstimator:
    """What torchrec's planner asks about shards; a virtual subclass of torchrec's ShardEstimator.

    Args:
        topology: of torchrec: its world size; devices and links are those of `hardware` and `cluster`.
        constraints: of torchrec, by table: `num_poolings` and `batch_sizes`.
        hardware: a device of gnnperf's catalog, or a .yaml file.
        cluster: links and hosts; None: the device's own.
        optimizer: fused with the tables' backward pass.
        skew: table -> exponent of the access (gnnperf.generate.recommendation.plan); others are uniform.

    Raises:
        InputError: an unknown name.
    """

    def __init__(
        self, topology: Any, constraints: Mapping[str, Any] | None = None, *, hardware: str,
        cluster: str | None = None, optimizer: Optimizer = Optimizer.ROWWISE_ADAGRAD,
        skew: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        device, self._ranks = load_device(hardware), int(topology.world_size)
        links = default_cluster(device) if cluster is None else load_cluster(cluster, device)
        self._cluster = spread(links, self._ranks)
        self._constraints, self._optimizer, self._skew = constraints or {}, optimizer, skew or {}
        _types().ShardEstimator.register(type(self))

    def estimate(self, sharding_options: Sequence[Any], sharder_map: Any = None, sharder_data_map: Any = None) -> None:
        """Fill `perf` of every shard of every option."""
        shards = [(option, shard) for option in sharding_options for shard in option.shards]
        if not shards:
            return
        requested = [self._requested(option, shard) for option, shard in shards]
        ms = MS * np.array([*self._kernels_us(requested), *self._collectives_us(requested)]).T  # [shards, 4]
        for (_, shard), (forward, backward, ahead, back) in zip(shards, ms.tolist(), strict=True):
            shard.perf = _types().Perf(fwd_compute=forward, fwd_comms=ahead, bwd_compute=backward, bwd_comms=back)

    def _requested(self, option: Any, shard: Any) -> _Requested:
        sharding, kernel, where = str(option.sharding_type), str(option.compute_kernel), f"table {option.name!r}"
        require(sharding in SHARDINGS, f"sharding type of {where}", sharding, ", ".join(SHARDINGS))
        require(kernel in HOST_SHARE, f"compute kernel of {where}", kernel, ", ".join(HOST_SHARE))
        rows, dim = (int(size) for size in shard.size)
        vectors, indices = self._samples(option)
        copies = 1 if sharding == COPIED else self._ranks
        share = rows / int(option.tensor.shape[0]) if sharding in DIVIDED else 1.0
        columns = max(round(dim * int(option.tensor.element_size()) / FLOAT_BYTES), 1)  # as many bytes in float32
        state = FLOAT_BYTES * STATES[self._optimizer] * (1 if self._optimizer is Optimizer.ROWWISE_ADAGRAD else dim)
        lookups, bags = (max(round(copies * count), 1) for count in (indices * share, vectors))
        skew = max(round(1000 * self._skew.get(option.name, 1.0)), 1)
        cached, host_share = getattr(option, "cache_load_factor", None), HOST_SHARE[kernel]
        if host_share is None:
            host_share = 1.0 - float(CACHED_SHARE if cached is None else cached)
        return _Requested(BatchedTable(max(rows, 1), columns, lookups, bags, skew, state), sharding, host_share)

    def _samples(self, option: Any) -> tuple[float, float]:
        """Vectors and indices of one rank's batch, over the features that share the table."""
        known, lengths = self._constraints.get(option.name), np.array([float(n) for n in option.input_lengths])
        poolings = getattr(option, "num_poolings", None) or getattr(known, "num_poolings", None) or [1.0] * len(lengths)
        batches = getattr(known, "batch_sizes", None) or [option.batch_size] * len(lengths)
        vectors = np.array(poolings) * np.array(batches)
        return float(vectors.sum()), float(lengths @ vectors)

    def _kernels_us(self, requested: Sequence[_Requested]) -> tuple[np.ndarray, np.ndarray]:
        """[n] us forward and backward, without launches; rows that lie with the host cross its link."""
        items = [item for each in requested for item in (
            batched_op(LOOK_UP, (each.table,), Phase.FORWARD),
            moves("sort", radix_sort_bytes(each.table.rows, each.table.lookups), Phase.BACKWARD),
            batched_op(UPDATE, (each.table,), Phase.BACKWARD),
        )]  # fmt: skip
        launches = np.array([LAUNCHES[LOOK_UP], 1, LAUNCHES[UPDATE]])
        us = kernels_us(self._cluster, items).reshape(-1, 3) - launches * self._cluster.device.launch_floor_us
        look_up, sort, update = us.T  # [n] each
        crossing = [e.host_share * e.table.lookups * e.table.dim * FLOAT_BYTES for e in requested]
        crossing_us = host_us(self._cluster, np.array(crossing))
        return look_up + crossing_us, sort + update + 2.0 * crossing_us  # a row is read and written by its update

    def _collectives_us(self, requested: Sequence[_Requested]) -> tuple[np.ndarray, np.ndarray]:
        """[n] us that the vectors add forward, and their gradients backward."""
        sizes = [(e.table.bags, e.table.rows, e.table.dim * FLOAT_BYTES) for e in requested]
        bags, rows, row_bytes = np.array(sizes, dtype=np.float64).T  # [n] each
        vectors = bags * row_bytes
        summed, stays = (np.array([e.sharding == kind for e in requested]) for kind in (SUMMED, COPIED))
        exchange = self._added_us("all_to_all", vectors)
        ahead = np.where(summed, self._added_us("reduce_scatter", vectors), exchange)
        back = np.where(summed, self._added_us("all_gather", vectors / self._ranks), exchange)
        return np.where(stays, 0.0, ahead), np.where(stays, self._added_us("all_reduce", rows * row_bytes), back)

    def _added_us(self, kind: str, message_bytes: np.ndarray) -> np.ndarray:
        """[n] us at the rate of long messages: vectors of all tables travel in one."""
        if self._ranks == 1:
            return np.zeros(len(message_bytes))
        short_us, long_us = collectives_us(self._cluster, self._ranks, kind, np.array(LONG_BYTES))
        return message_bytes * (long_us - short_us) / (LONG_BYTES[1] - LONG_BYTES[0])


def _types() -> Any:
    try:
        from torchrec.distributed.planner import types
    except ImportError as error:
        raise InputError(f"torchrec cannot be imported ({error})", where="AnalyticShardEstimator",
                         remedy="pip install 'gnnperf[torchrec]'") from None  # fmt: skip
    return types
