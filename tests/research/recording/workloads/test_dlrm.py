from pathlib import Path

import pytest
import torch

from research.recording.workloads.dlrm import index_statistics, interact
from research.recording.workloads.sharded_tables import Sharding
from tests.research.recording.workloads.ranks import Ranks, results_of
from tests.research.recording.workloads.table_checks import compare, train


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(train, tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize("world_size", [2, 4])
def test_sharded_tables_are_as_unsharded_ones(tmp_path: Path, world_size: int) -> None:
    for rank in results_of(compare, tmp_path, world_size=world_size):
        assert set(rank) == {f"{s} {transfer}" for s in Sharding for transfer in ("blocking", "overlapped")}
        for kind, result in rank.items():
            assert result["vectors"] < 1e-5 and result["gradients"] < 1e-5 < result["magnitude"]
            assert result["tables"] == (4 // world_size if kind.startswith("table") else 4)


@pytest.mark.parametrize("sharding", list(Sharding))
def test_known_changes_leave_the_losses(losses: Ranks, sharding: Sharding) -> None:
    for rank in losses:
        of = rank[sharding]
        assert of["none"][4] < of["none"][0]  # four batches take turns
        for change in ("overlap", "repeats", "repeating_rank"):
            assert of[change] == of["none"]
        assert of["bfloat16"] == pytest.approx(of["none"], abs=0.02) and of["bfloat16"] != of["none"]
        assert of["accumulation"] != of["none"]  # two batches per step


def test_reuse_is_counted_by_powers_of_two() -> None:
    # table 0: row 5 once, 6 twice, 7 three times | table 1: row 1 six times; and the same batch again
    batch = torch.tensor([[[5, 6], [6, 7], [7, 7]], [[1, 1], [1, 1], [1, 1]]])  # [T, B, P]
    first, second = index_statistics([batch, batch], rows=10, dim=4)
    assert first["reuse_histogram"] == [2, 2, 2] and second["reuse_histogram"] == [0, 0, 0, 2]
    assert first["pooling_factor"] == 2.0 and first["lookups_per_batch"] == 6 and first["batches"] == 2
    assert first["distinct_rows_per_batch"] == 3.0 and second["table"] == 1 and second["rows"] == 10


def test_interaction_repeats_without_a_trace_in_the_gradient() -> None:
    vectors = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], requires_grad=True)  # [1, 3, 2]
    with torch.profiler.profile() as profile:
        products = interact(vectors, 3)
    assert products.tolist() == [[11.0, 17.0, 39.0]]  # 1·0, 2·0, 2·1
    assert sum(event.name == "aten::bmm" for event in profile.events()) == 3
    products.sum().backward()
    assert vectors.grad is not None and vectors.grad.tolist() == [[[8.0, 10.0], [6.0, 8.0], [4.0, 6.0]]]
