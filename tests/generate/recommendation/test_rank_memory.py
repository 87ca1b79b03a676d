"""What ranks of recommendation plans hold, by hand."""

from typing import Any

import pytest

from gnnperf.analytic import LOOK_UP
from gnnperf.core import InputError, NodeType
from gnnperf.generate import RecommendationPlan, read_plan
from gnnperf.generate.recommendation.build import build_recommendation, recommendation_tensors
from gnnperf.memory import Part, planned_peak

DENSE = 13 * 8 + 8 + (8 + 3) * 1 + 1  # bottom 13 -> 8; top: 8 columns and three products of pairs -> 1


def _plan(
    placement: Any, *, optimizer: str = "rowwise_adagrad", ranks: int = 2, host: bool = False
) -> RecommendationPlan:
    raw = {
        "name": "two_tables",
        "model": {"tables": [{"name": "a", "rows": 1000, "dim": 8, "pooling": 2, "host": host},
                             {"name": "b", "rows": 100, "dim": 8, "pooling": 1}],
                  "dense_features": 13, "bottom": [8], "top": [1], "optimizer": optimizer},
        "batch": 64, "ranks": ranks, "placement": placement,
    }  # fmt: skip
    plan = read_plan(raw, "plan")
    assert isinstance(plan, RecommendationPlan)
    return plan


def test_ranks_hold_their_tables_with_optimizer_state() -> None:
    first, second = recommendation_tensors(_plan({"a": 0, "b": 1}))
    assert sum(first.parameters_bytes) == 4 * (DENSE + 1000 * 8)
    assert sum(second.parameters_bytes) == 4 * (DENSE + 100 * 8)
    assert sum(first.state_bytes) == 4 * (DENSE + 1000)  # a number per row, and one per parameter of perceptrons
    assert sum(first.buckets_bytes) == 4 * DENSE


def test_a_table_of_the_host_takes_no_device_memory_and_its_rows_cross_the_link() -> None:
    """Two of 1,000 rows per sample, 32 bytes each, of 64 samples; an update reads and writes them with 4 of state."""
    plan = _plan({"a": 0, "b": 1}, host=True)
    first, second = recommendation_tensors(plan)
    assert sum(first.parameters_bytes) == 4 * DENSE and sum(first.state_bytes) == 4 * DENSE
    assert sum(second.parameters_bytes) == 4 * (DENSE + 100 * 8)
    nodes = build_recommendation(plan).nodes
    copies = nodes[(nodes["node_type"] == NodeType.MEMORY).to_numpy()]
    assert copies["bytes"].tolist() == [64 * 2 * 32.0, *[64 * 2 * 36.0] * 2] and set(copies["rank"]) == {0}
    assert [name.split()[1] for name in copies["event_name"]] == ["HtoD", "HtoD", "DtoH"]
    kernels = (nodes["op_name"] == LOOK_UP) & (nodes["node_type"] == NodeType.COMPUTE)
    assert set(copies["stream"]) == set(nodes["stream"][kernels])  # one after the other
    with pytest.raises(InputError, match="replicas have gradients"):
        _plan({"a": "replicated", "b": 1}, host=True)


@pytest.mark.parametrize(("optimizer", "per_parameter"), [("sgd", 0), ("adagrad", 1), ("adam", 2)])
def test_state_of_other_optimizers_is_per_parameter(optimizer: str, per_parameter: int) -> None:
    first, _ = recommendation_tensors(_plan({"a": 0, "b": 1}, optimizer=optimizer))
    assert sum(first.state_bytes) == 4 * per_parameter * (DENSE + 1000 * 8)


def test_rows_and_columns_are_divided() -> None:
    (both,) = recommendation_tensors(_plan({"a": "row", "b": "column"}))
    assert sum(both.parameters_bytes) == 4 * (DENSE + 500 * 8 + 100 * 4)


def test_replicated_tables_have_gradients_as_large() -> None:
    (both,) = recommendation_tensors(_plan({"a": "replicated", "b": "replicated"}))
    assert planned_peak(both).parts_bytes[Part.GRADIENTS] == 4 * (DENSE + 1100 * 8)


def test_one_rank_updates_tables_without_gradients_and_buckets() -> None:
    (only,) = recommendation_tensors(_plan({"a": 0, "b": 0}, ranks=1))
    peak = planned_peak(only)
    assert peak.parts_bytes.get(Part.GRADIENTS, 0) <= 4 * DENSE
    assert peak.buckets_bytes == 0


def test_step_of_all_to_all_holds_vectors_of_both_sides() -> None:
    """After the exchange: vectors of the own table for 64 samples are gone, those of both tables for 32 are there."""
    first, _ = recommendation_tensors(_plan({"a": 0, "b": 1}))
    needed = 64 * 2 * 8 + 32 * 2 * 8 * 4  # indices of the own table, vectors of both tables
    assert planned_peak(first).parts_bytes[Part.ACTIVATIONS] >= needed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("interaction", ["dot", "cat"])
def test_every_op_of_the_program_is_accounted(dtype: str, interaction: str) -> None:
    """`recommendation_tensors` compares its ops with the program's, in order."""
    raw = {
        "name": "t", "batch": 64, "ranks": 4,
        "model": {"tables": [{"name": str(i), "rows": 100 * (i + 1), "dim": 16} for i in range(5)],
                  "bottom": [32, 16], "top": [16, 1], "interaction": interaction, "dtype": dtype},
        "placement": {"0": 0, "1": "row", "2": "column", "3": "replicated", "4": {"split": "row", "ranks": [1, 2]}},
    }  # fmt: skip
    plan = read_plan(raw, "plan")
    assert isinstance(plan, RecommendationPlan)
    assert all(planned_peak(tensors).peak_bytes > 0 for tensors in recommendation_tensors(plan))
