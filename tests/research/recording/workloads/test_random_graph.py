from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from research.recording.workloads.op_rules import broadcast
from research.recording.workloads.random_graph import FAMILIES, LARGEST_BOUND, Program, RandomGraph, compose, sources
from research.recording.workloads.workload import arithmetic

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
