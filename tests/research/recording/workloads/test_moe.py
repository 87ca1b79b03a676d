from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from gnnperf.record.launcher import launch
from research.recording.workloads.moe import Moe
from tests.research.recording.workloads.expert_checks import compare

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("compared")
    launch(compare, (folder,), world_size=2, timeout_s=120)
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("dispatch", ["padded", "uneven"])
def test_dispatched_tokens_are_as_those_of_experts_in_one_place(ranks: Ranks, dispatch: str) -> None:
    for rank in ranks:
        assert set(rank[dispatch]) == {"answers", "tokens", "gates", "up", "down"}
        assert max(rank[dispatch].values()) < 1e-5, rank[dispatch]


def test_tokens_outside_the_capacity_are_not_answered(ranks: Ranks) -> None:
    assert [rank["dropping"] for rank in ranks] == [[True, False, False, False, True]] * 2


@pytest.mark.parametrize("change", ["padded", "uneven", "top2", "repeats", "bfloat16", "accumulation"])
def test_it_trains(ranks: Ranks, change: str) -> None:
    trained = [rank["training"][change] for rank in ranks]
    assert trained[0]["weights"] == trained[1]["weights"] != []
    assert trained[0]["losses"] != trained[1]["losses"]  # each has its own data
    for rank in trained:
        assert rank["without_gradient"] == 0
        assert rank["losses"][4] < rank["losses"][0]  # four batches take turns


def test_repeats_leave_the_losses(ranks: Ranks) -> None:
    for rank in ranks:
        assert rank["training"]["repeats"]["losses"] == rank["training"]["padded"]["losses"]
        assert rank["training"]["bfloat16"]["losses"] != rank["training"]["padded"]["losses"]


def test_every_field_shows_in_the_name() -> None:
    base = Moe()
    assert base.name == "moe_l2_w64_e4_s32_b8"
    changed = Moe(layers=1, width=32, experts=8, sequence=16, batch=4, hidden=128, vocabulary=500, top=2,
                  capacity_factor=2.0, padded=False, repeats=3, repeating_rank=1, precision="bfloat16",
                  accumulation=2)  # fmt: skip
    names = {replace(base, **{f.name: getattr(changed, f.name)}).name for f in fields(Moe)}
    assert len(names | {base.name}) == len(fields(Moe)) + 1
    assert changed.name == "moe_l1_w32_e8_s16_b4_h128_v500_top2_c2_padded0_rep3_on1_bfloat16_acc2"


def test_capacity_is_the_share_of_an_expert() -> None:
    # 1.25 x 8 x 32 tokens / 4 experts
    assert Moe().capacity == 80 and Moe(top=2).capacity == 160 and Moe(batch=1, sequence=1).capacity == 1
