"""A mixture of experts (Switch, Fedus et al. 2021; GShard, Lepikhin et al. 2020): experts sharded, all else replicated.

tokens -> embedding -> layers x [attention -> router -> dispatch.py: all-to-all, own experts, all-to-all] -> output
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from gnnperf.core import InputError
from research.recording.workloads.dispatch import Dispatch, Experts, Padded, Uneven
from research.recording.workloads.replicate import NUM_BATCHES, replicated
from research.recording.workloads.workload import SEED, LossTrainer, Trainer, Workload, arithmetic, device, repeats_here

HEAD = 32  # columns of an attention head


@dataclass(frozen=True)
class Moe(Workload, kind="moe",
          letters={"layers": "l", "width": "w", "experts": "e", "sequence": "s", "batch": "b"}, otherwise={
    "hidden": "h", "vocabulary": "v", "top": "top", "capacity_factor": "c", "padded": "padded", "repeats": "rep",
    "repeating_rank": "on", "precision": "", "accumulation": "acc",
}):  # fmt: skip
    """A language model with experts."""

    layers: int = 2  # blocks of attention and experts
    width: int = 64  # size of a token's vector; a multiple of 32 (the size of a head)
    experts: int = 4  # per layer, of the whole model; a multiple of the number of ranks
    sequence: int = 32  # tokens per sample
    batch: int = 8  # samples per rank and micro-batch
    hidden: int = 256  # columns inside an expert
    vocabulary: int = 1000  # number of tokens
    top: int = 1  # experts per token
    # padded: places per expert and rank, in multiples of its share of the tokens; later tokens are dropped. Without
    # effect if not padded.
    capacity_factor: float = 1.25
    padded: bool = True  # ranks exchange parts of equal size, padded; else as many tokens as were routed, counts first
    repeats: int = 1  # how often the experts' first product runs in the forward
    repeating_rank: int | None = None  # the only rank that repeats it; None all do
    precision: str = "float32"  # of products, float32 or bfloat16 (autocast)
    accumulation: int = 1  # micro-batches per step

    @property
    def parallelism(self) -> dict[str, int]:
        """Experts are sharded over the same ranks that replicate the rest."""
        return {"dp": dist.get_world_size(), "ep": dist.get_world_size()}

    @property
    def capacity(self) -> int:
        """Places per expert for the tokens of one rank."""
        return max(1, int(self.capacity_factor * self.batch * self.sequence * self.top / self.experts))

    def build(self) -> Trainer:
        """This rank's experts, the replicated rest, and batches; all random numbers follow from SEED and the rank."""
        ranks = dist.get_world_size()
        if self.experts % ranks:
            raise InputError(f"{self.experts} cannot be shared by {ranks} ranks", where="experts",
                             allowed=f"multiples of {ranks}")  # fmt: skip
        torch.manual_seed(SEED + 1 + dist.get_rank())
        times = repeats_here(self.repeats, self.repeating_rank)
        experts = [Experts(self.experts // ranks, self.width, self.hidden, times).to(device())
                   for _ in range(self.layers)]  # fmt: skip
        turn = cycle([self._batch() for _ in range(NUM_BATCHES)])
        torch.manual_seed(SEED)
        model = replicated(Network(self, experts))
        context = arithmetic(self.precision)

        def forward() -> torch.Tensor:
            tokens = next(turn)  # [B, S + 1]
            with context():
                logits = model(tokens[:, :-1])  # [B * S, V]
            return F.cross_entropy(logits.float(), tokens[:, 1:].flatten())

        own = [p for layer in experts for p in layer.parameters()]
        optimizer = torch.optim.SGD([*model.parameters(), *own], lr=0.1, momentum=0.9, fused=True)
        return LossTrainer((model,), forward, (optimizer,), self.accumulation)

    def _batch(self) -> torch.Tensor:
        """Tokens and the one after them, [B, S + 1] int64."""
        return torch.randint(0, self.vocabulary, (self.batch, self.sequence + 1)).to(device())


class Network(nn.Module):
    """What is replicated: embeddings, attention, routers, output layer."""

    def __init__(self, size: Moe, experts: Sequence[Experts]) -> None:
        super().__init__()
        self.token = nn.Embedding(size.vocabulary, size.width)
        self.position = nn.Parameter(torch.zeros(size.sequence, size.width))
        self.blocks = nn.Sequential(*(Block(size, own) for own in experts))
        self.norm = nn.LayerNorm(size.width, bias=False)
        self.output = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, S] int64 -> logits [B * S, V]."""
        vectors = (self.token(tokens) + self.position).flatten(0, 1)
        logits: torch.Tensor = self.output(self.norm(self.blocks(vectors)))
        return logits


class Block(nn.Module):
    """Attention and experts, each behind a norm and around it a residual connection."""

    def __init__(self, size: Moe, experts: Experts) -> None:
        super().__init__()
        width = size.width
        self.heads, self.sequence, self.top = width // HEAD, size.sequence, size.top
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.projection = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.router = nn.Linear(width, size.experts, bias=False)
        # A function, not a module of this one: DDP would average experts that have nothing to do with each other.
        self.dispatch: Dispatch = Padded(experts, size.capacity) if size.padded else Uneven(experts)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, W] of N = B * S tokens -> [N, W]."""
        vectors = vectors + self.projection(self._attend(self.norm1(vectors)))
        tokens = self.norm2(vectors)
        gates, chosen = self.router(tokens).float().softmax(dim=1).topk(self.top)  # [N, top] each
        return vectors + self.dispatch(tokens, chosen, gates)

    def _attend(self, vectors: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(vectors).view(-1, self.sequence, 3, self.heads, HEAD).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, H, S, 32]
        return mixed.transpose(1, 2).reshape(vectors.shape)
