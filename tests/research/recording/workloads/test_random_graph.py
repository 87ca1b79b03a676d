from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from math import prod
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.record.launcher import launch
from research.recording.workloads.op_rules import Value, broadcast
from research.recording.workloads.op_rules_layout import BINARY
from research.recording.workloads.op_rules_product import CONVOLUTIONS, PRODUCTS
from research.recording.workloads.random_graph import FAMILIES, LARGEST_BOUND, Program, RandomGraph, compose, sources
from research.recording.workloads.workload import arithmetic
from tests.research.recording.workloads.programs import train

SMALL = RandomGraph(num_ops=30, scale=16_000, batch=8)
SEEDS = range(30)


@given(seed=st.integers(0, 2**31), precision=st.sampled_from(["float32", "bfloat16"]))
def test_every_program_runs_as_its_rules_say(seed: int, precision: str) -> None:
    size = replace(SMALL, seed=seed, precision=precision)
    nodes = compose(size)
    assert len(nodes) == size.num_ops
    torch.manual_seed(seed)
    program, batch = Program(sources(size), nodes), size._batch()
    result: list[tuple[int, ...]] = []
    for op in program.ops:
        op.register_forward_hook(lambda module, inputs, output: result.append(tuple(output.shape)))
    with arithmetic(precision)():
        loss = program(*batch)
    loss.backward()
    assert result == [node.op.output.shape for node in nodes]
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in program.parameters())


@given(seed=st.integers(0, 2**31), scale=st.sampled_from([4_000, 16_000, 64_000]), batch=st.sampled_from([1, 4, 16]))
def test_values_stay_within_their_limits(seed: int, scale: int, batch: int) -> None:
    for node in compose(RandomGraph(seed=seed, num_ops=20, scale=scale, batch=batch)):
        assert prod(node.op.output.shape) <= scale and node.op.output.bound <= LARGEST_BOUND


def test_thirty_seeds_use_most_ops() -> None:
    used = {node.op.name for seed in SEEDS for node in compose(RandomGraph(seed=seed))}
    assert len(used) >= 55, len(used)
    assert {"linear", "matmul", "bmm", "conv2d", "max_pool2d", "layer_norm", "softmax", "cat", "slice"} <= used
    assert len({rule.name for family in FAMILIES for rule in family}) >= 60


def test_a_seed_is_a_program() -> None:
    first, again, other = (compose(replace(SMALL, seed=seed)) for seed in (1, 1, 2))
    assert [(n.op.name, n.op.output, n.inputs) for n in first] == [(n.op.name, n.op.output, n.inputs) for n in again]
    assert [n.op.name for n in first] != [n.op.name for n in other]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [((2, 3), (3,), (2, 3)), ((2, 1), (4, 1, 5), (4, 2, 5)), ((2, 3), (2,), None), ((1,), (1, 1), (1, 1))],
)
def test_shapes_broadcast(a: tuple[int, ...], b: tuple[int, ...], expected: tuple[int, ...] | None) -> None:
    assert broadcast(a, b) == expected == broadcast(b, a)


def test_rules_refuse_what_does_not_fit() -> None:
    named = {rule.name: rule for family in (BINARY, PRODUCTS, CONVOLUTIONS) for rule in family}
    vectors, matrix, image = Value((2, 3), 1.0), Value((3, 16), 1.0), Value((2, 8, 9, 16), 1.0)
    product = named["matmul"].propose(Random(0), vectors, matrix)
    assert product is not None and product.output.shape == (2, 16) and product.work == 2 * 16 * 3
    assert named["matmul"].propose(Random(0), matrix, vectors) is None
    assert named["bmm"].propose(Random(0), vectors, matrix) is None
    assert named["cat"].propose(Random(0), vectors, matrix) is None
    assert named["conv2d"].propose(Random(0), vectors) is None
    pooled = named["max_pool2d"].propose(Random(0), image)
    assert pooled is not None and pooled.output.shape == (2, 8, 4, 8)


def test_a_scale_that_no_op_fits_is_refused() -> None:
    with pytest.raises(InputError, match=r"0 of 16 ops fit 10 elements"):
        compose(RandomGraph(scale=10))


def test_two_ranks_train_one_program(tmp_path: Path) -> None:
    programs = [replace(SMALL, seed=0), replace(SMALL, seed=1, precision="bfloat16", accumulation=2)]
    launch(train, (tmp_path, programs), world_size=2, timeout_s=120)
    ranks = [json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in range(2)]
    for program in programs:
        one, other = (rank[program.name] for rank in ranks)
        assert one["weights"] == other["weights"] != [] and one["losses"] != other["losses"]
        assert one["without_gradient"] == 0 and all(map(math.isfinite, one["losses"]))


def test_every_field_shows_in_the_name() -> None:
    base = RandomGraph()
    assert base.name == "random_graph_s0_n16_e128k_b32"
    changed = RandomGraph(7, num_ops=30, scale=1500, batch=4, image=24, precision="bfloat16", accumulation=2)
    names = {replace(base, **{f.name: getattr(changed, f.name)}).name for f in fields(RandomGraph)}
    assert len(names | {base.name}) == len(fields(RandomGraph)) + 1
    assert changed.name == "random_graph_s7_n30_e1500_b4_i24_bfloat16_acc2"
