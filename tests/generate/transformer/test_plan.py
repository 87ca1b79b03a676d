"""What a plan refuses, and what follows from its numbers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate import Parallelism, Schedule, Sharding, TransformerPlan
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.flops import step_work_of
from gnnperf.generate.transformer.items import Offload, Store
from gnnperf.generate.transformer.lengths import drawn_steps, with_sequence
from gnnperf.generate.transformer.memory import misplaced_groups
from gnnperf.generate.transformer.plan import Lengths, Pipeline, Sharded, Transformer
from gnnperf.generate.transformer.read import plan_from
from tests.generate.transformer.plans import MODEL, step_us
from tests.generate.transformer.test_block import llama
from tests.generate.transformer.test_experts import mixture
from tests.generate.transformer.test_sharding import offloaded, sharded

RAW: dict[str, Any] = {"name": "a", "model": {"layers": 2, "hidden": 64, "heads": 2, "sequence": 8},
       "schedule": {"global_batch": 4, "micro_batch": 2}}  # fmt: skip


def _plan(ways: Parallelism, schedule: Schedule = Schedule(4, 1)) -> TransformerPlan:  # noqa: B008
    return TransformerPlan("a", MODEL, ways, schedule)


def test_micro_batches_tokens_and_padded_vocabulary() -> None:
    plan = TransformerPlan("a", MODEL, Parallelism(2, 2, 3), Schedule(24, 2))
    assert (plan.num_micro_batches, plan.tokens, plan.layers_per_chunk) == (4, 256, 2)
    assert plan.vocabulary_per_rank == 512  # 1000 -> 1024, a multiple of 2 x 128; half of it


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: _plan(Parallelism(tensor=3)), "parallelism.tensor"),
        (lambda: _plan(Parallelism(pipeline=3)), "parallelism.pipeline x schedule.chunks"),
        (lambda: _plan(Parallelism(data=3)), "parallelism.data x schedule.micro_batch"),
        (lambda: _plan(Parallelism(), Schedule(4, 1, Pipeline.INTERLEAVED, chunks=2)), "parallelism.pipeline"),
        (lambda: _plan(Parallelism(1, 2), Schedule(3, 1, Pipeline.INTERLEAVED, chunks=2)), "parallelism.pipeline"),
        (lambda: Schedule(4, 1, Pipeline.INTERLEAVED), "schedule.chunks"),
        (lambda: Schedule(4, 1, chunks=2), "schedule.chunks"),
        (lambda: Schedule(0, 1), "schedule.global_batch"),
        (lambda: Transformer(1, 64, 3, 8), "model.heads"),
        (lambda: Transformer(1, 64, 2, 8, dtype="float32"), "model.dtype"),
        (lambda: Parallelism(tensor=0), "parallelism.tensor"),
        (lambda: _plan(Parallelism(), Schedule(4, 1, ends_as_layers=True)), "schedule.ends_as_layers"),
        (lambda: _plan(Parallelism(1, 2), Schedule(4, 1, ends_as_layers=True, recomputed_layers=1)),
         "schedule.ends_as_layers"),
        (lambda: TransformerPlan("a", MODEL, Parallelism(), Schedule(4, 1), sharding=Sharding(release_gradients=True)),
         "sharding.release_gradients"),
        (lambda: sharded(Sharded.PARAMETERS, pipeline=2), "parallelism.pipeline"),
        (lambda: sharded(Sharded.GRADIENTS, pipeline=2), "parallelism.pipeline"),
        (lambda: sharded(Sharded.OPTIMIZER, data=1), "parallelism.data"),
        (lambda: offloaded(Offload(optimizer=Store.HOST), data=4), "offload.optimizer"),  # every replica everything
        (lambda: mixture(Parallelism(data=6, expert=4)), "parallelism.expert"),
        (lambda: mixture(Parallelism(data=16, expert=16)), "parallelism.expert"),
        (lambda: llama(Parallelism(data=2, expert=2)), "parallelism.expert"),  # a model without experts
        (lambda: mixture(Parallelism(tensor=2)), "parallelism.sequence"),
        (lambda: mixture(every=3), "experts.every"),
        (lambda: mixture(top_k=9), "experts.top_k"),
        (lambda: mixture(imbalance=0.5), "experts.imbalance"),
        (lambda: mixture(imbalance=2.0, capacity_factor=1.0), "experts.imbalance"),
        (lambda: mixture(capacity_factor=0.0), "experts.capacity_factor"),
        (lambda: mixture(skew=-1.0), "experts.skew"),
        (lambda: mixture(skew=math.inf), "experts.skew"),
        (lambda: mixture(skew=1.0, count=10_000), "experts.count"),
        (lambda: mixture(skew=1.0, imbalance=2.0), "experts.skew"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_named(make: Any, key: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert error.value.where == key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modle": {}}, "unknown key 'modle'"),
        ({"model": {"layers": 2}}, "hidden, heads, sequence are required"),
        ({"schedule": {"global_batch": "four", "micro_batch": 1}}, "bad value 'four'"),
        ({"schedule": {"global_batch": 4, "micro_batch": 1, "recompute": "some"}}, "none, selective, full"),
        ({"parallelism": {"tensr": 2}}, "unknown key 'tensr'"),
        ({"model": None}, "bad value None"),
        ({"expert": {"count": 8}}, "did you mean 'experts'"),
        ({"block": {"atention": "flash"}}, "did you mean 'attention'"),
        ({"block": {"bias": 1}}, "true or false"),
        ({"block": {"key_value_heads": "four"}}, "a whole number or null"),
        ({"sharding": {"state": "zero3"}}, "nothing, optimizer, gradients, parameters"),
        ({"offload": {"optimizer": "disk"}}, "device, host, nvme"),
        ({"experts": {"top_k": 2}}, "count is required"),
        ({"schedule": {"global_batch": True, "micro_batch": 1}}, "bad value True"),
    ],
)
def test_a_bad_mapping_is_one_message(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_from({**RAW, **changes}, "plan")


def test_groups_on_unequal_machines_are_named() -> None:
    plan = TransformerPlan("a", MODEL, Parallelism(4, 2, 2), Schedule(4, 1))
    assert [misplaced_groups(plan, ranks_per_node) for ranks_per_node in (1, 2, 4, 8, 16)] == [()] * 5
    tensor, data = misplaced_groups(plan, 6)  # of 0-3 and 4-7 the second leaves the first machine, 8-15 sits otherwise
    assert "tensor" in tensor and "data" in data


def test_sections_become_settings() -> None:
    plan = plan_from(
        {**RAW, "block": {"attention": "flash", "width": None}, "experts": {"count": 4, "imbalance": 1.5},
         "sharding": {"state": "optimizer"}, "offload": {"activations": "host"},
         "parallelism": {"data": 2, "expert": 2}, "schedule": {**RAW["schedule"], "pipeline": "gpipe"}},
        "plan",
    )  # fmt: skip
    assert (plan.block.attention, plan.block.width, plan.experts and plan.experts.load) == ("flash", None, 1.5)
    assert (plan.sharding.state, plan.offload.activations) == ("optimizer", "host")
    assert plan.schedule.pipeline is Pipeline.GPIPE
    assert plan_from(RAW, "plan").parallelism == Parallelism()


VARIABLE = {**RAW, "model": {**RAW["model"], "sequence": 256}, "schedule": {"global_batch": 8, "micro_batch": 2},
            "parallelism": {"data": 2}}  # fmt: skip


def test_lengths_are_read_from_the_first_column(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("length,source\n30,a\n200,b\n")
    plan = plan_from({**VARIABLE, "lengths": {"file": str(file), "draws": 5}}, "plan")
    assert plan.lengths == Lengths((30, 200), draws=5)
    refused = {b"12.5\n30\n": "bad value '12.5'", "²\n30\n".encode(): "bad value '²'",  # no header
               b"30\nmany\n": "bad value 'many'", b"\xff\xfe": r"lengths\.csv: cannot be read"}  # fmt: skip
    for content, message in refused.items():
        file.write_bytes(content)
        with pytest.raises(InputError, match=message):
            plan_from({**VARIABLE, "lengths": {"file": str(file)}}, "plan")
    with pytest.raises(InputError, match="at least 320"):
        plan_from({**VARIABLE, "lengths": {"values": [300]}}, "plan")


def test_micro_batches_are_padded_to_their_longest_sample_and_the_busiest_replica_counts() -> None:
    plan = plan_from({**VARIABLE, "lengths": {"values": [1, 65, 130], "draws": 50}}, "plan")
    steps = drawn_steps(plan)
    assert len(steps) == 50 and {len(step) for step in steps} == {2}  # two micro-batches of two samples
    assert {length for step in steps for length in step} == {64, 128, 192}
    assert sum(steps[0]) < sum(steps[-1])  # by ascending work
    lone = plan_from({**VARIABLE, "parallelism": {}, "lengths": {"values": [1, 65, 130], "draws": 50}}, "plan")
    mean = [np.mean([np.mean(step) for step in drawn_steps(one)]) for one in (lone, plan)]
    assert mean[0] < mean[1]


def test_a_step_of_one_length_is_the_plan_of_that_length() -> None:
    """And one of two lengths takes the time of both."""
    plan = plan_from({**VARIABLE, "model": {"layers": 2, "hidden": 2048, "heads": 16, "sequence": 2048}}, "plan")
    short, both, long = (step_us(build_plan(plan, lengths=own)) for own in ((1024, 1024), (1024, 2048), (2048, 2048)))
    assert short == pytest.approx(step_us(build_plan(with_sequence(plan, 1024))), rel=1e-2)  # fewer positions
    assert long == step_us(build_plan(plan))
    assert both == pytest.approx((short + long) / 2, rel=1e-2)


def test_work_of_samples_of_several_lengths_is_the_mean() -> None:
    divided = {**VARIABLE, "block": {"attention": "flash"}, "parallelism": {"data": 2, "context": 2}}
    assert step_work_of(plan_from({**divided, "lengths": {"values": [33, 95]}}, "plan")).tokens == 8 * 64
    plan = plan_from({**VARIABLE, "lengths": {"values": [64, 192]}}, "plan")
    halves = [step_work_of(with_sequence(plan, length)) for length in (64, 192)]
    assert step_work_of(plan).tokens == 8 * 128
    assert step_work_of(plan).model_flops == pytest.approx(sum(one.model_flops or 0 for one in halves) / 2)


def test_a_vocabulary_is_padded_as_the_plan_says() -> None:
    as_it_is = {**RAW, "model": {**RAW["model"], "vocabulary": 50257, "vocabulary_multiple": 1}}
    padded = {**RAW, "model": {**RAW["model"], "vocabulary": 50257}}
    assert [plan_from(raw, "plan").vocabulary_per_rank for raw in (as_it_is, padded)] == [50257, 50304]
