from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gnnperf.record.launch import launch
from tests.research.recording.programs import TINY, train_tiny

NAMES = [workload.name for workload in TINY]
Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("trained")
    launch(train_tiny, (folder, 6), world_size=2, timeout_s=60)
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_finite_and_weights_learn(ranks: Ranks, name: str) -> None:
    for rank in ranks:
        losses = rank[name]["losses"]
        assert len(losses) == 6 and all(math.isfinite(loss) for loss in losses)
        assert losses[4] < losses[0]  # four batches take turns: steps 0 and 4 see the same one


@pytest.mark.parametrize("name", NAMES)
def test_ranks_agree_on_gradients_and_weights(ranks: Ranks, name: str) -> None:
    assert ranks[0][name]["losses"] != ranks[1][name]["losses"]  # each has its own data
    assert ranks[0][name]["gradients"] == ranks[1][name]["gradients"] != []
    assert ranks[0][name]["weights"] == ranks[1][name]["weights"] != []


def test_exchange_sends_rows_forward_and_gradients_back(ranks: Ranks) -> None:
    assert ranks[0]["exchange"] == {"received": [0.0, 10.0], "gradient": [1.0, 2.0]}
    assert ranks[1]["exchange"] == {"received": [1.0, 11.0], "gradient": [1.0, 2.0]}


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_no_environment_is_left_behind(ranks: Ranks, tmp_path: Path) -> None:
    import os

    assert "GLOO_SOCKET_IFNAME" not in os.environ and "KINETO_LOG_LEVEL" not in os.environ
