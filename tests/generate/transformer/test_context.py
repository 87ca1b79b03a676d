"""Context parallelism: messages, FLOPs and memory of a rank by hand; the messages of torch's own ring."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention

from gnnperf.core import InputError, OpFamily
from gnnperf.generate.capturing import capture
from gnnperf.generate.transformer.block import Kernels
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.context import FLASH
from gnnperf.generate.transformer.plan import ContextExchange, Parallelism, Recompute, Schedule, TransformerPlan
from gnnperf.generate.transformer.rank_memory import layer_uses
from gnnperf.generate.transformer.sizes import stage_count
from gnnperf.generate.uses import retained_bytes
from tests.generate.transformer.plans import every_rank, transfers, with_times
from tests.generate.transformer.test_block import LLAMA, MODEL

RING, ALL_GATHER, ULYSSES = ContextExchange
FUSED, EAGER = Kernels
torch_ring: Any = _attention
RANKS, BLOCK = 2, replace(LLAMA, key_value_heads=2)  # four query heads, 64 columns each; 128 positions, four layers
KEYS, QUERIES = 64 * 2 * 64 * 2.0, 64 * 256 * 2.0  # bytes of keys, or values, and of queries of a rank's 64 positions


def plan(exchange: ContextExchange, ranks: int = RANKS, kernels: Kernels = FUSED, **more: Any) -> TransformerPlan:
    ways = Parallelism(context=ranks, context_exchange=exchange, **more)
    schedule = Schedule(ways.data, 1, recompute=Recompute.NONE)
    return TransformerPlan("c", MODEL, ways, schedule, replace(BLOCK, kernels=kernels))


@pytest.mark.parametrize(
    ("exchange", "kernels", "of_layer"),
    [
        (RING, FUSED, {("send_recv", 2 * KEYS): 3}),  # keys and values forward; they and gradients backward
        (RING, EAGER, {("send_recv", 2 * KEYS): 2, ("send_recv", 4 * KEYS): 2}),  # float32 gradients, one more round
        (ALL_GATHER, FUSED, {("all_gather", KEYS): 4, ("reduce_scatter", 2 * KEYS): 2}),
        (ULYSSES, FUSED, {("all_to_all", QUERIES): 4, ("all_to_all", KEYS): 4}),
    ],
)  # fmt: skip
def test_messages_by_hand(exchange: ContextExchange, kernels: Kernels, of_layer: dict[tuple[str, float], int]) -> None:
    """And one sum of gradients over replicas and context ranks."""
    one = plan(exchange, kernels=kernels, data=2)
    expected = {(*message, RANKS): MODEL.layers * times for message, times in of_layer.items()}
    assert transfers(build_plan(one)) == {**expected, ("all_reduce", 2.0 * stage_count(one, 0).total, 4): 1}


@pytest.mark.parametrize("exchange", ContextExchange)
@pytest.mark.parametrize("kernels", Kernels)
def test_ranks_together_attend_to_as_many_pairs_as_one_does(exchange: ContextExchange, kernels: Kernels) -> None:
    whole, part = (build_plan(plan(exchange, ranks, kernels)).nodes for ranks in (1, RANKS))
    assert RANKS * _attention_flops(part) == _attention_flops(whole)


def _attention_flops(nodes: pd.DataFrame) -> float:
    return float(nodes["flops"][(nodes["family"] == OpFamily.ATTENTION).to_numpy()].sum())


def test_a_layer_keeps_its_part() -> None:
    """Torch's ring keeps what one rank does of its positions; the others keep results of attention twice."""
    whole, ring, gather, ulysses = (
        retained_bytes(layer_uses(plan(exchange, ranks, EAGER)))
        for exchange, ranks in ((RING, 1), (RING, RANKS), (ALL_GATHER, RANKS), (ULYSSES, RANKS))
    )
    assert (RANKS * ring, gather, ulysses) == (whole, ring + QUERIES, ring + QUERIES)


def test_blocks_move_next_to_attention() -> None:
    """Four rounds of 1 us each way; two messages of 0.5 us fit next to one of them, of 5 us they do not."""
    graph, attention = build_plan(plan(RING, 4)), dict.fromkeys((FLASH, f"{FLASH}_backward"), 1.0)
    hidden, long = (with_times(graph, attention, {"send_recv": us / KEYS}, {}) for us in (0.5, 5.0))
    assert hidden == pytest.approx(MODEL.layers * 2 * 4 * 1.0)
    assert long >= MODEL.layers * (3 + 6) * 5.0


def test_context_ranks_are_next_to_tensor_ranks() -> None:
    nodes = build_plan(one := plan(RING, tensor=2, data=2), every_rank(one.parallelism)).nodes
    rings = nodes[(nodes["collective"] == "send_recv").to_numpy() & (nodes["group_first"] >= 0).to_numpy()]
    assert {*zip(rings["group_first"], rings["group_stride"], strict=True)} == {(0, 2), (1, 2), (4, 2), (5, 2)}


def test_ulysses_divides_heads_of_keys() -> None:
    with pytest.raises(InputError, match=r"4 does not divide block\.key_value_heads, 2"):
        plan(ULYSSES, 4)


def _ring() -> None:
    """Forward and backward, over the CPU's attention."""
    group, ops, q = dist.group.WORLD, torch.ops.aten, torch.zeros(1, 2, 32, 64, dtype=torch.bfloat16)
    name, masked = "_scaled_dot_product_flash_attention_for_cpu", {"is_causal": True, "dropout_p": 0.0}
    out, sums = torch_ring._templated_ring_attention(group, 2, getattr(ops, name), q, q, q, **masked)
    backward = getattr(ops, f"{name}_backward")
    torch_ring._templated_ring_attention_backward(group, 2, backward, q, "grad_out", q, q, q, out, sums, **masked)


def test_messages_and_flops_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_ring._cp_options, "rotate_method", torch_ring._RotateMethod.ALL_TO_ALL)
    graph, captured = build_plan(plan(RING, 4, EAGER)), capture(lambda: _ring, 4, ranks=[3]).nodes
    captured = captured[(captured["step"] == 1).to_numpy()]
    ours = Counter[float]()
    for (kind, size, _), times in transfers(graph).items():
        ours[size] += times // MODEL.layers if kind == "send_recv" else 0
    assert Counter(captured["message_bytes"][(captured["segment"] == "arrive").to_numpy()]) == +ours
    assert _attention_flops(graph.nodes) == MODEL.layers * 2 * _attention_flops(captured)  # of half of the query heads
