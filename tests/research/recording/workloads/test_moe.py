from __future__ import annotations

import pytest

from research.recording.workloads.moe import Moe
from tests.research.recording.workloads.expert_checks import compare
from tests.research.recording.workloads.ranks import Ranks, results_of


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(compare, tmp_path_factory.mktemp("compared"))


@pytest.mark.parametrize("dispatch", ["padded", "uneven"])
def test_dispatched_tokens_are_as_those_of_experts_in_one_place(ranks: Ranks, dispatch: str) -> None:
    for rank in ranks:
        assert set(rank[dispatch]) == {"answers", "tokens", "gates", "up", "down"}
        assert max(rank[dispatch].values()) < 1e-5, rank[dispatch]


def test_tokens_outside_the_capacity_are_left_out(ranks: Ranks) -> None:
    assert [rank["dropping"] for rank in ranks] == [[True, False, False, False, True]] * 2


def test_capacity_is_the_share_of_an_expert() -> None:
    # 1.25 x 8 x 32 tokens / 4 experts
    assert Moe().capacity == 80 and Moe(top=2).capacity == 160 and Moe(batch=1, sequence=1).capacity == 1
