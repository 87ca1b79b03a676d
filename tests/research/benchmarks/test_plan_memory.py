"""Plans hold what torch counts of programs that do the same: one small configuration of each kind."""

from typing import Any

import pytest

from research.benchmarks.plan_memory import case, cases, counted_bytes, predicted_bytes
from research.benchmarks.published_steps import MEGATRON, ROWS, equation_3_flops, planned, published_tokens_per_s

SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "vocabulary": 512}
FSDP: dict[str, Any] = {"parallelism": {"data": 4}, "sharding": {"state": "parameters"}}


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize(
    "sections",
    [
        FSDP,
        {**FSDP, "schedule": {"recompute": "full", "micro_batches": 2}},
        {**FSDP, "sharding": {"state": "parameters", "reshard_after_forward": False}},
        {"parallelism": {"tensor": 2, "sequence": True}, "schedule": {"micro_batch": 2}},
        {"parallelism": {"pipeline": 2}, "schedule": {"micro_batches": 4}},
        {"parallelism": {"data": 4, "expert": 4}, "experts": {"count": 4}},
    ],
)
def test_plan_holds_what_torch_counts(sections: dict[str, Any]) -> None:
    one = case("small", model=SMALL, block={"width": 256, "key_value_heads": 2}, **sections)
    assert predicted_bytes(one)[0] == pytest.approx(counted_bytes(one), rel=0.05)


def test_recommendation_plan_holds_what_torch_counts() -> None:
    one = next(one for one in cases() if one.kind == "recommendation")
    assert predicted_bytes(one)[0] == pytest.approx(counted_bytes(one), rel=0.05)


def test_there_are_thirty_configurations_of_every_kind() -> None:
    kinds = {one.kind.partition(",")[0] for one in cases()}
    assert len(list(cases())) >= 30
    expected = "fsdp2|zero 1|tensor|sequence|1f1b|gpipe|interleaved|experts|recommendation"
    assert set(expected.split("|")) <= kinds


# Published rates as tokens per second, by the formula of their source.


def test_rates_of_megatron_follow_equation_3() -> None:
    """Narayanan et al. 2021: 96 B s l h^2 (1 + s/6h + V/16lh); 18.4 billion parameters, 135 TFLOP/s."""
    row = next(row for row in ROWS if row.source == MEGATRON and row.tflops == 135)
    plan = planned(row)
    per_token = 96 * 40 * 6144**2 * (1 + 2048 / (6 * 6144) + 51200 / (16 * 40 * 6144))
    assert equation_3_flops(plan) == pytest.approx(per_token)
    assert published_tokens_per_s(row, plan) == pytest.approx(135e12 / per_token)


def test_published_tokens_stay_as_they_are() -> None:
    assert published_tokens_per_s(ROWS[0], planned(ROWS[0])) == 2162


def test_rows_have_the_parallelism_of_their_source() -> None:
    sizes = [planned(row).parallelism.world_size for row in ROWS]
    assert sizes == [64, 64, 64, 128, 128, 32, 64, 128, 256, 512, 1024, 1536, 16384, 16384, 64]
