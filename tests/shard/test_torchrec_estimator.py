"""The estimator for torchrec's planner, against its own types or a stand-in for them."""

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.generate.recommendation.plan import Optimizer
from gnnperf.shard.torchrec_estimator import AnalyticShardEstimator
from tests.shard import torchrec_stand_in

HAS_TORCHREC = importlib.util.find_spec("torchrec") is not None
PLANNER = "torchrec.distributed.planner"
# of torchrec's import
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
ROWS, DIM, RANKS, BATCH = 1_000_000, 64, 8, 4096


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """torchrec's types, or the stand-in under their name."""
    if HAS_TORCHREC:
        return importlib.import_module(f"{PLANNER}.types")
    planner = ModuleType(PLANNER)
    planner.types = torchrec_stand_in  # type: ignore[attr-defined]
    for name in ("torchrec", "torchrec.distributed"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, PLANNER, planner)
    return torchrec_stand_in


def _option(
    types: Any, sharding: str, sizes: list[list[int]], kernel: str = "fused", lengths: tuple[float, ...] = (10.0,),
    dtype: torch.dtype = torch.float32,
) -> Any:  # fmt: skip
    weight = torch.empty(ROWS, DIM, dtype=dtype, device="meta")
    shards = [types.Shard(size=size, offset=[0, 0]) for size in sizes]
    return types.ShardingOption("t", weight, ("ebc", torch.nn.Module()), list(lengths), BATCH, sharding, "device",
                                kernel, shards)  # fmt: skip


def _estimator(types: Any, constraints: Any = None, **more: Any) -> AnalyticShardEstimator:
    return AnalyticShardEstimator(types.Topology(world_size=RANKS, compute_device="cuda"), constraints,
                                  hardware="a100_sxm_80gb", **more)  # fmt: skip


def _perf(types: Any, sharding: str, sizes: list[list[int]], **more: Any) -> Any:
    option = _option(types, sharding, sizes, **more)
    _estimator(types).estimate([option], sharder_data_map={})
    return option.shards[0].perf


def test_it_is_a_shard_estimator(types: Any) -> None:
    estimator = _estimator(types)
    assert isinstance(estimator, types.ShardEstimator)
    assert estimator.estimate([], sharder_map={}) is None


def test_a_whole_table_in_milliseconds(types: Any) -> None:
    """8 x 4096 x 10 rows of 256 bytes at 2 TB/s take 42 us and more; the vectors, 8 MiB, 30 us and more."""
    perf = _perf(types, "table_wise", [[ROWS, DIM]])
    gathered_ms = RANKS * BATCH * 10 * 256 / 2.039e12 * 1e3
    assert gathered_ms < perf.fwd_compute < 4 * gathered_ms
    assert perf.fwd_compute < perf.bwd_compute < 6 * perf.fwd_compute
    sent_ms = RANKS * BATCH * 256 * 7 / 8 / 300e9 * 1e3
    assert 0.5 * sent_ms < perf.fwd_comms < 4 * sent_ms
    assert perf.fwd_comms == pytest.approx(perf.bwd_comms)
    assert perf.total == pytest.approx(perf.fwd_compute + perf.fwd_comms + perf.bwd_compute + perf.bwd_comms)


def test_shards_have_their_part_of_the_work(types: Any) -> None:
    whole = _perf(types, "table_wise", [[ROWS, DIM]])
    column = _perf(types, "column_wise", [[ROWS, DIM // 2]] * 2)
    row = _perf(types, "row_wise", [[ROWS // RANKS, DIM]] * RANKS)
    assert column.fwd_comms == pytest.approx(whole.fwd_comms / 2)
    assert 0.4 * whole.fwd_compute < column.fwd_compute < whole.fwd_compute
    assert row.fwd_compute < 0.3 * whole.fwd_compute
    node = _perf(types, "table_row_wise", [[ROWS // 4, DIM]] * 4)
    assert row.fwd_compute < node.fwd_compute < whole.fwd_compute


def test_a_replicated_table_is_looked_up_locally_and_summed(types: Any) -> None:
    whole, copy = (_perf(types, kind, [[ROWS, DIM]]) for kind in ("table_wise", "data_parallel"))
    assert copy.fwd_comms == 0.0
    assert copy.fwd_compute < whole.fwd_compute / 4
    assert copy.bwd_comms > 2 * ROWS * DIM * 4 * 7 / 8 / 300e9 * 1e3 * 0.5


def test_rows_with_the_host_cross_its_link(types: Any) -> None:
    near, cached, far = (_perf(types, "table_wise", [[ROWS, DIM]], kernel=kernel)
                         for kernel in ("fused", "fused_uvm_caching", "fused_uvm"))  # fmt: skip
    assert near.fwd_compute < cached.fwd_compute < far.fwd_compute
    assert (cached.fwd_compute - near.fwd_compute) / (far.fwd_compute - near.fwd_compute) == pytest.approx(0.8)


def test_features_poolings_and_batches_add_up(types: Any) -> None:
    one = _perf(types, "table_wise", [[ROWS, DIM]], lengths=(10.0,))
    two = _perf(types, "table_wise", [[ROWS, DIM]], lengths=(10.0, 10.0))
    assert two.fwd_comms == pytest.approx(2 * one.fwd_comms)
    option = _option(types, "table_wise", [[ROWS, DIM]])
    constraints = {"t": types.ParameterConstraints(num_poolings=[2.0], batch_sizes=[BATCH])}
    _estimator(types, constraints).estimate([option])
    assert option.shards[0].perf.fwd_compute == pytest.approx(two.fwd_compute)


def test_dtype_hot_rows_and_the_optimizer_are_settings(types: Any) -> None:
    def perf(dtype: torch.dtype = torch.float32, **more: Any) -> Any:
        option = _option(types, "table_wise", [[ROWS, DIM]], dtype=dtype)
        _estimator(types, **more).estimate([option])
        return option.shards[0].perf

    plain = perf()
    assert perf(torch.float16).fwd_compute < plain.fwd_compute
    assert perf(skew={"t": 8.0}).fwd_compute < plain.fwd_compute
    assert perf(optimizer=Optimizer.ADAM).bwd_compute > plain.bwd_compute


@pytest.mark.parametrize(
    ("sharding", "kernel", "message"),
    [("diagonal", "fused", "bad value 'diagonal'"), ("table_wise", "quant", "'quant'")],
)
def test_what_is_not_known_is_refused(types: Any, sharding: str, kernel: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _perf(types, sharding, [[ROWS, DIM]], kernel=kernel)


def test_without_torchrec_one_sentence_states_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchrec", "torchrec.distributed", PLANNER):
        monkeypatch.setitem(sys.modules, name, None)
    topology = torchrec_stand_in.Topology(RANKS, "cuda")
    with pytest.raises(InputError, match=r"torchrec cannot be imported .* pip install 'gnnperf\[torchrec\]'"):
        AnalyticShardEstimator(topology, hardware="a100_sxm_80gb")


@pytest.mark.skipif(not HAS_TORCHREC, reason="torchrec is not installed: pip install 'gnnperf[torchrec]'")
def test_torchrec_plans_with_it() -> None:
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
    from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

    tables = [EmbeddingBagConfig(name=f"t{i}", embedding_dim=DIM, num_embeddings=10**5, feature_names=[f"f{i}"])
              for i in range(6)]  # fmt: skip
    collection = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    topology = Topology(world_size=2, compute_device="cuda")
    estimators = [
        AnalyticShardEstimator(topology, hardware="a100_sxm_80gb"),
        EmbeddingStorageEstimator(topology=topology),
    ]
    enumerator = EmbeddingEnumerator(topology, batch_size=BATCH, estimator=estimators)
    planner = EmbeddingShardingPlanner(topology=topology, batch_size=BATCH, enumerator=enumerator)
    plan = planner.plan(collection, [EmbeddingBagCollectionSharder()])
    assert set(plan.plan[""]) == {f"t{i}" for i in range(6)}
