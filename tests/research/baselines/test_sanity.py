from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.hardware.spec import LinkSpec
from research.baselines.sanity import (
    crossed_link,
    half_bandwidth,
    half_flops,
    is_memory_bound,
    moves,
    on_device,
    over_links_of,
    with_another_link,
    with_links_shuffled,
)
from research.baselines.trivial import Base
from tests.research.baselines.made_data import once_recorded


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return once_recorded(tmp_path_factory.mktemp("cache"))


def with_cost(step: Step, flops: float, moved: float) -> Step:
    gemm = (step.nodes["node_type"] == "compute").to_numpy()
    nodes = step.nodes.assign(flops=np.where(gemm, flops, np.nan), bytes=np.where(gemm, moved, np.nan))
    return replace(step, graph=replace(step.graph, nodes=nodes))


def test_bounds_by_hand(data: PreparedData) -> None:
    """15 TFLOP/s and 900 GB/s, sustained 0.65 and 0.80: balanced at 9.75e12 / 0.72e12 = 13.5 FLOP/byte."""
    step = data.steps["test"][0]
    gemm = (step.nodes["node_type"] == "compute").to_numpy()
    for flops, memory in ((13e6, True), (14e6, False)):
        memory_bound, compute_bound = is_memory_bound(with_cost(step, flops, 1e6))
        assert np.array_equal(memory_bound, gemm & memory)
        assert np.array_equal(compute_bound, gemm & (not memory))
    assert not any(part.any() for part in is_memory_bound(with_cost(step, np.nan, 1e6)))


def test_the_base_moves_as_the_device_does(data: PreparedData) -> None:
    """A gemm of the toy is bound by its FLOPs: half the rate costs it much more than half the bandwidth."""
    step = data.steps["test"][0]
    _, compute_bound = is_memory_bound(step)
    device = step.cluster.device
    slower, narrower = (on_device(step, change(device), data) for change in (half_flops, half_bandwidth))
    assert compute_bound.sum() == 2
    half_rate, half_memory = (moves(Base(), [(step, other)], [compute_bound]) for other in (slower, narrower))
    assert half_rate.up == 1.0
    assert half_rate.median_ratio > 1.4 * half_memory.median_ratio
    assert on_device(step, device, data).data["compute"].x.tolist() == step.data["compute"].x.tolist()


@dataclass(frozen=True)
class Fixed:
    """Answers by name of the cluster's device bandwidth."""

    def latency_us(self, step: Step) -> np.ndarray:
        ratio = step.cluster.device.memory_bandwidth_bytes_per_s / 900e9
        return np.array([1.0, 1.0, 1.0, 1.0]) * np.array([1 / ratio, 1.0, ratio, 1.0005 if ratio < 1 else 1.0])

    def step_us(self, step: Step) -> float:
        return 1.0


def test_moves_by_hand(data: PreparedData) -> None:
    step = data.steps["test"][0]
    other = replace(step, cluster=replace(step.cluster, device=half_bandwidth(step.cluster.device)))
    result = moves(Fixed(), [(step, other)], [np.ones(4, dtype=bool)])
    assert (result.nodes, result.up, result.down) == (4, 0.25, 0.25)  # 0.05 % is no move
    assert result.median_ratio == pytest.approx((1.0 + 1.0005) / 2)
    none = moves(Fixed(), [(step, other)], [np.zeros(4, dtype=bool)])
    assert none.nodes == 0 and np.isnan(none.up)


def test_links_are_dealt_out_anew_and_nothing_else_changes(data: PreparedData) -> None:
    column = WORK_NAMES.index("log_link_bytes_per_s")
    steps = []
    for number, step in enumerate(data.steps["train"]):
        made = on_device(step, step.cluster.device, data)
        made.data["collective"].x[:, column] = float(number)
        steps.append(made)
    before = [step.data["collective"].x.clone() for step in steps]
    dealt = with_links_shuffled(steps, seed=1)
    now = [step.data["collective"].x for step in dealt]
    assert sorted(x[0, column].item() for x in now) == [0.0, 1.0, 2.0, 3.0]
    assert [x[0, column].item() for x in now] != [0.0, 1.0, 2.0, 3.0]
    others = [c for c in range(before[0].shape[1]) if not WORK_NAMES[c].startswith(("log_link", "crosses"))]
    assert all(torch.equal(a[:, others], b[:, others]) for a, b in zip(before, now, strict=True))
    assert all(torch.equal(a, step.data["collective"].x) for a, step in zip(before, steps, strict=True))
    again = with_links_shuffled(steps, seed=1)
    assert all(torch.equal(a.data["collective"].x, b.data["collective"].x) for a, b in zip(dealt, again, strict=True))


def test_the_link_of_another_run(data: PreparedData) -> None:
    """The toy crosses "intra", 100 GB/s. Over a tenth of it the transfer's base takes longer; a gemm's does not."""
    step = data.steps["test"][0]
    assert crossed_link(step).bandwidth_bytes_per_s == 100e9
    slow = LinkSpec("slow", 10e9, 2.0)
    other = replace(step, cluster=replace(step.cluster, intra=slow))
    assert crossed_link(other) == slow
    moved = over_links_of(step, other, data)
    for node_type, ratio in (("collective", 3.0), ("compute", 0.999)):
        assert (moved.data[node_type].base_us > ratio * step.data[node_type].base_us).all()
    assert moved.data["compute"].base_us.tolist() == step.data["compute"].base_us.tolist()
    assert moved.data["collective"].latency_us.tolist() == step.data["collective"].latency_us.tolist()


def test_every_step_gets_the_next_one_with_another_link(data: PreparedData) -> None:
    step = data.steps["test"][0]
    fast, slow = (replace(step, run=n, cluster=replace(step.cluster, intra=LinkSpec(n, r, 2.0)))
                  for n, r in (("fast", 90e9), ("slow", 10e9)))  # fmt: skip
    again = replace(fast, run="again")
    pairs = [(one.run, other.run) for one, other in with_another_link([fast, again, slow])]
    assert pairs == [("fast", "slow"), ("again", "slow"), ("slow", "fast")]
    with pytest.raises(InputError, match="all steps cross the same link"):
        with_another_link([fast, again])
