"""Small problems that the tests share."""

from dataclasses import replace

import numpy as np

from gnnperf.generate.recommendation.plan import RecommendationPlan, Recommender, Table
from gnnperf.generate.recommendation.read import largest_first
from gnnperf.hardware import default_cluster, load_device
from gnnperf.shard.problem import Problem


def tables(count: int, seed: int = 0, dim: int = 64) -> tuple[Table, ...]:
    """Of 10^3 to 10^6 rows, 1 to 30 indices, some hot."""
    rng = np.random.default_rng(seed)
    return tuple(Table(f"t{i}", int(10 ** rng.uniform(3, 6)), dim, float(rng.integers(1, 31)), float(rng.uniform(1, 6)))
                 for i in range(count))  # fmt: skip


def problem(own: tuple[Table, ...], ranks: int, *, batch: int = 16384, capacity_bytes: float | None = None) -> Problem:
    """On A100s, or such with another memory, of which tables get so much."""
    cluster = default_cluster(load_device("a100_sxm_80gb"))
    model = Recommender(own, (128, own[0].dim), (128, 1))
    plan = RecommendationPlan("small", model, batch, ranks, largest_first(own, ranks))
    result = Problem(plan, cluster)
    if capacity_bytes is None:
        return result
    less_bytes = (result.capacity_bytes - capacity_bytes) / (1.0 - result.reserve_share)
    device = replace(cluster.device, memory_bytes=cluster.device.memory_bytes - less_bytes)
    return Problem(plan, replace(cluster, device=device))
