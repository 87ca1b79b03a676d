"""Every program trains on two ranks: gradients and weights agree, data differ, known changes leave the losses."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.cnn import Bottleneck, Cnn, Layout, ResNet
from research.recording.workloads.dispatch import Dispatch, Experts, Padded, Uneven
from research.recording.workloads.moe import Moe
from research.recording.workloads.random_graph import RandomGraph
from research.recording.workloads.rl import PythonCartPoles, Rl, TensorCartPoles, returns_of
from research.recording.workloads.transformer import Transformer
from research.recording.workloads.workload import Workload
from tests.research.recording.programs import TINY_DLRM, exchange_ranks
from tests.research.recording.workloads.ranks import ISOLATED, Ranks, isolated, results_of, train, write

TOKENS, WIDTH, EXPERTS = 6, 4, 4


def compare(folder: Path) -> None:
    """Write how far dispatched tokens are from those of experts held in one place, as rank_<r>.json."""
    result = {
        "padded": _differences(lambda own: Padded(own, capacity=2 * TOKENS)),
        "uneven": _differences(Uneven),
        "dropping": _answered(lambda own: Padded(own, capacity=1)),
    }
    write(folder, result)


def _differences(dispatch: Callable[[Experts], Dispatch]) -> dict[str, float]:
    """Largest difference of answers and gradients, as a share of the largest value."""
    tokens, chosen, gates, up, down = (part.requires_grad_(part.is_floating_point()) for part in _everybodys())
    rank = dist.get_rank()
    own = Experts(EXPERTS // 2, WIDTH, WIDTH)
    own.up.data, own.down.data = (whole.detach().chunk(2)[rank].clone() for whole in (up, down))
    mine, weights = (whole.detach()[rank].clone().requires_grad_() for whole in (tokens, gates))
    computed = dispatch(own)(mine, chosen[rank], weights)
    expected = _in_one_place(tokens, chosen, gates, up, down)  # [ranks, N, W]
    result = (computed, *torch.autograd.grad(computed.square().sum(), (mine, weights, own.up, own.down)))
    whole = torch.autograd.grad(expected.square().sum(), (tokens, gates, up, down))
    right = (expected[rank], whole[0][rank], whole[1][rank], whole[2].chunk(2)[rank], whole[3].chunk(2)[rank])
    names = ("answers", "tokens", "gates", "up", "down")
    return {n: float((f - r).abs().max() / r.abs().max()) for n, f, r in zip(names, result, right, strict=True)}


def _answered(dispatch: Callable[[Experts], Dispatch]) -> list[bool]:
    """Which of five tokens, all for expert 3 but the last, find a place."""
    chosen = torch.tensor([[3], [3], [3], [3], [0]])
    computed = dispatch(Experts(EXPERTS // 2, WIDTH, WIDTH))(torch.ones(5, WIDTH), chosen, torch.ones(5, 1))
    result: list[bool] = (computed != 0).any(dim=1).tolist()
    return result


def _everybodys() -> tuple[torch.Tensor, ...]:
    """The same on every rank: tokens [ranks, N, W], chosen and gates [ranks, N, 2], up and down [E, W, W]."""
    torch.manual_seed(0)
    chosen = torch.stack([torch.randperm(EXPERTS - 1)[:2] for _ in range(2 * TOKENS)]).view(2, TOKENS, 2)
    weights = torch.randn(EXPERTS, WIDTH, WIDTH), torch.randn(EXPERTS, WIDTH, WIDTH)  # no one chose the last expert
    return torch.randn(2, TOKENS, WIDTH), chosen, torch.rand(2, TOKENS, 2), *weights


def _in_one_place(
    tokens: torch.Tensor, chosen: torch.Tensor, gates: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    every = torch.einsum("rneh,ehw->rnew", F.gelu(torch.einsum("rnw,ewh->rneh", tokens, up)), down)
    picked = every.gather(2, chosen.unsqueeze(3).expand(*chosen.shape, WIDTH))  # [ranks, N, 2, W]
    return (picked * gates.unsqueeze(3)).sum(dim=2)


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


@pytest.fixture(scope="module")
def expert_ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(compare, tmp_path_factory.mktemp("compared"))


@pytest.mark.parametrize("dispatch", ["padded", "uneven"])
def test_dispatched_tokens_are_as_those_of_experts_in_one_place(expert_ranks: Ranks, dispatch: str) -> None:
    for rank in expert_ranks:
        assert set(rank[dispatch]) == {"answers", "tokens", "gates", "up", "down"}
        assert max(rank[dispatch].values()) < 1e-5, rank[dispatch]


def test_tokens_outside_the_capacity_are_left_out(expert_ranks: Ranks) -> None:
    assert [rank["dropping"] for rank in expert_ranks] == [[True, False, False, False, True]] * 2


def test_capacity_is_the_share_of_an_expert() -> None:
    # 1.25 x 8 x 32 tokens / 4 experts
    assert Moe().capacity == 80 and Moe(top=2).capacity == 160 and Moe(batch=1, sequence=1).capacity == 1


def test_bottlenecks_widen_fourfold() -> None:
    model = ResNet(Cnn(blocks=2, channels=8, layout=Layout.BOTTLENECK), 1)
    blocks = [block for block in model.blocks if isinstance(block, Bottleneck)]
    kernels = [[part.kernel_size[0] for part in block.convolutions if isinstance(part, nn.Conv2d)] for block in blocks]
    assert kernels == [[1, 3, 1]] * 6
    assert [block.channels for block in blocks] == [32, 32, 64, 64, 128, 128]
    assert model.output.in_features == 128


def test_a_pushed_cart_moves_as_the_equations_say() -> None:
    carts = PythonCartPoles([[0.0, 0.0, 0.0, 0.0]], seed=0)
    assert carts.push(torch.tensor([1.0])).tolist() == [1.0]
    # upright and at rest: push 10 / 1.1; angular -push / (0.5 (4/3 - 0.1 / 1.1)); linear push - 0.05 angular / 1.1
    push = 10 / 1.1
    angular = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    linear = push - 0.05 * angular / 1.1
    assert carts.states().tolist() == [pytest.approx([0.0, 0.02 * linear, 0.0, 0.02 * angular], rel=1e-6)]


def test_both_kinds_of_carts_move_alike_until_they_fall() -> None:
    starts = [[0.01, 0.0, 0.02, 0.0], [-0.04, 0.03, -0.01, 0.02], [2.3, 3.0, 0.0, 0.0]]
    one, together = PythonCartPoles([list(s) for s in starts], seed=0), TensorCartPoles(starts, seed=0)
    for move in range(6):
        actions = torch.tensor([move % 2, 1 - move % 2, 1.0])
        assert one.push(actions).tolist() == together.push(actions).tolist() == [1.0, 1.0, 0.0 if move == 1 else 1.0]
        assert torch.allclose(one.states()[:2], together.states()[:2], atol=1e-5)
        fallen = torch.stack([one.states()[2], together.states()[2]])
        assert move != 1 or (fallen.abs() <= 0.05).all()  # it begins again near the middle


def test_returns_end_where_a_cart_falls() -> None:
    # cart 0 balances twice and falls; cart 1 balances to the end
    returns = returns_of([torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])])
    assert torch.stack(returns).tolist() == [pytest.approx([1.95, 2.8525]), pytest.approx([1.0, 1.95]), [0.0, 1.0]]


def test_a_rank_without_peers_talks_to_no_one(tmp_path: Path) -> None:
    (result,) = results_of(isolated, tmp_path, world_size=1)
    assert result["difference"] < 1e-6
    for name in ISOLATED:
        assert result[name]["collectives"] == []
        assert all(map(math.isfinite, result[name]["losses"])) and len(set(result[name]["losses"])) == 3
