"""Memory in closed form, by hand."""

from __future__ import annotations

from dataclasses import replace

from gnnperf.generate.transformer.activations import retained_bytes
from gnnperf.generate.transformer.held import held_bytes, most_in_flight
from gnnperf.generate.transformer.passes import Order
from gnnperf.generate.transformer.plan import Pipeline, Recompute, Sharded, Sharding
from gnnperf.generate.transformer.sizes import stage_parameters
from tests.generate.transformer.plans import small


def test_a_rank_holds_sixteen_bytes_per_parameter_logits_and_four_layers() -> None:
    """Rajbhandari et al. 2020: 2 + 2 + 12 bytes; 128 tokens x 1,024 columns of logits in float16 and float32."""
    plan = small(recompute=Recompute.NONE)
    states = 16 * stage_parameters(plan, 0)
    logits = 128 * 1024 * (2 + 4)
    layers = 4 * retained_bytes(plan, 0)
    assert held_bytes(plan) == states + max(layers + logits, 4 * stage_parameters(plan, 0))


def test_sharding_divides_the_optimizer_state_over_replicas() -> None:
    whole = small(data=4, recompute=Recompute.NONE)
    shared = replace(whole, sharding=Sharding(Sharded.OPTIMIZER))
    count = stage_parameters(whole, 0)
    assert held_bytes(shared) < held_bytes(whole) - 8 * count  # nine of twelve bytes, and gradients in float32


def test_micro_batches_in_flight_follow_from_the_order() -> None:
    def of(kind: Pipeline, chunks: int = 1) -> list[int]:
        return [most_in_flight(Order(kind, 4, 8, chunks), stage) for stage in range(4)]

    assert of(Pipeline.GPIPE) == [8, 8, 8, 8]
    assert of(Pipeline.ONE_F_ONE_B) == [4, 3, 2, 1]
    assert of(Pipeline.INTERLEAVED, 2) == [11, 9, 7, 5]  # chunks: p v + p - 1 on the first stage
    assert of(Pipeline.ZB_H1) == [4, 4, 4, 4]  # held until gradients of weights: as much as 1F1B's first stage
