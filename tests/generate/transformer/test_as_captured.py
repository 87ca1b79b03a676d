"""The same small model, planned, and captured from torch's fully_shard: the same collectives with the same bytes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

from gnnperf.core import NodeType
from gnnperf.generate import Parallelism, Recompute, Schedule, Sharded, Sharding, TransformerPlan
from gnnperf.generate.capturing import capture
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import Transformer
from gnnperf.graph.execution_graph import ExecutionGraph
from tests.generate.transformer.test_block import LLAMA

RANKS, LAYERS, HIDDEN, HEADS, KEY_HEADS, WIDTH, ROWS, SEQUENCE = 4, 2, 64, 4, 2, 96, 128, 16


class Layer(nn.Module):
    """Grouped queries, SwiGLU, RMS norms; no positions, which have no parameters."""

    def __init__(self) -> None:
        super().__init__()
        head = HIDDEN // HEADS
        self.norms = nn.ModuleList([nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)])
        self.qkv = nn.Linear(HIDDEN, HIDDEN + 2 * KEY_HEADS * head, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, 2 * WIDTH, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head = HIDDEN // HEADS
        q, k, v = self.qkv(self.norms[0](x)).split([HIDDEN, KEY_HEADS * head, KEY_HEADS * head], dim=-1)
        q, k, v = (t.view(1, SEQUENCE, -1, head).transpose(1, 2) for t in (q, k, v))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(context.transpose(1, 2).reshape(1, SEQUENCE, HIDDEN))
        gate, up = self.up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    """Embedding, layers, norm and logits of their own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ROWS, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.logits = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, ROWS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.logits(self.norm(x))


def build(micro_batches: int, reshard: bool) -> Callable[[], None]:
    """One rank's training step, sharded as torchtitan does it."""
    model, policy = Model(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model.embedding, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard([model.norm, model.logits], mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mp_policy=policy)
    tokens = torch.zeros(1, SEQUENCE, dtype=torch.int64)

    def step() -> None:
        for _ in range(micro_batches):
            model(tokens).float().logsumexp(-1).sum().backward()

    return step


def plan(micro_batches: int, reshard: bool) -> TransformerPlan:
    model = Transformer(LAYERS, HIDDEN, HEADS, SEQUENCE, ROWS, "bfloat16")
    schedule = Schedule(RANKS * micro_batches, 1, recompute=Recompute.NONE, gradient_dtype="float32")
    sharding, block = Sharding(Sharded.PARAMETERS, reshard), replace(LLAMA, key_value_heads=KEY_HEADS, width=WIDTH)
    return TransformerPlan("sharded", model, Parallelism(data=RANKS), schedule, block, sharding=sharding)


def collectives(graph: ExecutionGraph, step: int) -> list[tuple[str, float, int]]:
    """(op, bytes, ranks) of rank 0's collectives in the order in which it issues them, without the plan's update.

    Ops, not kinds: gloo, whose ranks are captured, reduces all of a reduce-scatter on all of them.
    """
    nodes = graph.nodes
    arrives = (nodes["node_type"] == NodeType.COMM).to_numpy() & (nodes["segment"] == "arrive").to_numpy()
    result = nodes[arrives & (nodes["rank"] == 0).to_numpy() & (nodes["step"] == step).to_numpy()]
    result = result[(result["phase"] != "optimizer").to_numpy()]
    return list(zip(result["op_name"].astype(str), result["message_bytes"], result["group_size"], strict=True))


@pytest.mark.parametrize(("micro_batches", "reshard"), [(2, True), (1, False)])
def test_collectives_are_those_of_fully_shard_in_its_order(micro_batches: int, reshard: bool) -> None:
    captured = capture(lambda: build(micro_batches, reshard), RANKS, ranks=[0])
    ours = collectives(build_plan(plan(micro_batches, reshard)), 0)
    assert ours == collectives(captured, 1)
