"""Every program trains on two ranks: gradients and weights agree, data differ, known changes leave the losses."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from research.recording.workloads.cnn import Cnn, Layout
from research.recording.workloads.moe import Moe
from research.recording.workloads.random_graph import RandomGraph
from research.recording.workloads.rl import Rl
from research.recording.workloads.transformer import Transformer
from research.recording.workloads.workload import Workload
from tests.research.recording.programs import TINY_DLRM, exchange_ranks
from tests.research.recording.workloads.ranks import Ranks, results_of, train

CNN = Cnn(blocks=1, channels=4, image=8, batch=4)
MOE = Moe(layers=1, width=32, experts=2, sequence=8, batch=4, hidden=16, vocabulary=20)
RL = Rl(hidden=16, num_envs=16, horizon=16)
GPT = Transformer(layers=1, width=64, sequence=8, batch=2, vocabulary=50)
RANDOM = RandomGraph(num_ops=30, scale=16_000, batch=8)
PROGRAMS: dict[str, Workload] = {
    "dlrm": TINY_DLRM, "gpt": GPT, "bert": replace(GPT, causal=False),
    "cnn": CNN, "cnn blocking": replace(CNN, blocking=True), "cnn repeats": replace(CNN, repeats=3),
    "cnn repeating rank": replace(CNN, repeats=3, repeating_rank=1), "cnn uneven": replace(CNN, uneven=1.5),
    "cnn bottleneck": replace(CNN, layout=Layout.BOTTLENECK, blocks=2),
    "cnn accumulation": replace(CNN, accumulation=2), "cnn bfloat16": replace(CNN, precision="bfloat16"),
    "moe": MOE, "moe uneven": replace(MOE, padded=False), "moe top2": replace(MOE, padded=False, top=2),
    "moe repeats": replace(MOE, repeats=2, repeating_rank=0), "moe bfloat16": replace(MOE, precision="bfloat16"),
    "moe accumulation": replace(MOE, accumulation=2),
    "rl": RL, "rl repeats": replace(RL, repeats=3, repeating_rank=1), "rl tensor": replace(RL, vectorized=True),
    "rl accumulation": replace(RL, horizon=4, accumulation=2),
    "random": RANDOM, "random bfloat16": replace(RANDOM, seed=1, precision="bfloat16", accumulation=2),
}  # fmt: skip
STEPS = {**dict.fromkeys(("dlrm", "transformer", "cnn", "moe"), 9), "rl": 4, "random_graph": 2}  # fmt: skip
CHANGES_NOTHING = {"cnn blocking": "cnn", "cnn repeats": "cnn", "cnn repeating rank": "cnn", "moe repeats": "moe",
                   "rl repeats": "rl"}  # fmt: skip


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(train, tmp_path_factory.mktemp("trained"), PROGRAMS, STEPS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_agree_on_gradients_and_weights_and_have_data_of_their_own(ranks: Ranks, name: str) -> None:
    one, other = (rank[name] for rank in ranks)
    assert one["gradients"] == other["gradients"] and one["weights"] == other["weights"] != []
    assert len(one["gradients"]) == len(one["weights"])
    assert one["losses"] != other["losses"]
    assert all(map(math.isfinite, one["losses"] + other["losses"]))
    assert one["places"] == ["start", "backward", "optimizer"]


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if STEPS[program.kind] >= 9])
def test_it_learns(ranks: Ranks, name: str) -> None:
    for losses in (rank[name]["losses"] for rank in ranks):
        assert losses[8] < losses[0]  # four batches take turns


@pytest.mark.parametrize(("changed", "plain"), CHANGES_NOTHING.items())
def test_known_changes_leave_loss_and_gradients(ranks: Ranks, changed: str, plain: str) -> None:
    for rank in ranks:
        assert rank[changed]["losses"][0] == rank[plain]["losses"][0]
        assert rank[changed]["gradients"] == pytest.approx(rank[plain]["gradients"], rel=1e-5)
    if "repeats" in changed:
        assert all(rank[changed]["losses"] == rank[plain]["losses"] for rank in ranks)


def test_products_in_bfloat16_change_the_losses(ranks: Ranks) -> None:
    assert all(rank["moe bfloat16"]["losses"] != rank["moe"]["losses"] for rank in ranks)


def test_only_the_last_rank_is_uneven(ranks: Ranks) -> None:
    assert [rank["cnn uneven"]["losses"][0] == rank["cnn"]["losses"][0] for rank in ranks] == [True, False]


def test_exchange_sends_rows_forward_and_gradients_back(tmp_path: Path) -> None:
    result = results_of(exchange_ranks, tmp_path)
    assert result[0] == {"received": [0.0, 10.0], "gradient": [1.0, 2.0]}
    assert result[1] == {"received": [1.0, 11.0], "gradient": [1.0, 2.0]}
    assert "GLOO_SOCKET_IFNAME" not in os.environ and "KINETO_LOG_LEVEL" not in os.environ
