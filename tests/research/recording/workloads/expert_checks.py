"""What the tests of the mixture of experts run in ranks of their own; found by name in the new processes."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F

from research.recording.workloads.dispatch import Dispatch, Experts, Padded, Uneven
from tests.research.recording.workloads.ranks import write

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
