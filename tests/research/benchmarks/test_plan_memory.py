"""Plans hold what torch counts of programs that do the same: one small configuration of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from research.benchmarks.plan_memory import case, cases, counted_bytes, predicted_bytes

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
    assert {
        "fsdp2",
        "zero 1",
        "tensor",
        "sequence",
        "1f1b",
        "gpipe",
        "interleaved",
        "experts",
        "recommendation",
    } <= kinds
