"""The same small steps, captured and run: the same ops, shapes and costs in the same order."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gnnperf.generate.capturing import capture
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.record.step_recorder import PROFILER_WARMUP_STEPS, step_profiler
from gnnperf.trace import read_run

Step = Callable[[], object]
COLUMNS = ["op_name", "segment", "phase", "family", "dtype", "input_dims", "flops", "bytes"]


def held_gradient() -> Step:
    weight, gradient = nn.Parameter(torch.ones(4, 4)), torch.ones(4, 4)

    def step() -> None:
        inner = weight.exp()
        (inner + inner.sin()).backward(gradient)

    return step


def own_gradient() -> Step:
    weight = nn.Parameter(torch.ones(4, 4))

    def step() -> None:
        inner = weight.exp()
        (inner.cos() * inner.sin()).sum().backward()

    return step


def clicks() -> Step:
    model, labels, rows = nn.Linear(8, 1), torch.ones(4), torch.ones(4, 8)
    return lambda: F.binary_cross_entropy_with_logits(model(rows).squeeze(1), labels).backward()


def padded() -> Step:
    model, rows = nn.Linear(8, 2), torch.ones(4, 8)
    return lambda: F.pad(model(rows), (0, 0, 0, 1))[torch.tensor([0, 2])].sum().backward()


def normalized() -> Step:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images, classes = torch.ones(2, 3, 8, 8), torch.zeros(2, dtype=torch.int64)
    return lambda: F.cross_entropy(model(images), classes).backward()


def mixed_precision() -> Step:
    model, rows = nn.Linear(8, 2), torch.ones(4, 8)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(rows).float().sum()
        loss.backward()

    return step


def recorded(build: Callable[[], Step], folder: Path) -> ExecutionGraph:
    step, profiler = build(), step_profiler(2)
    step()
    with profiler:
        for _ in range(PROFILER_WARMUP_STEPS + 2):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(folder / "rank_0.json"))
    return build_graph(read_run(folder))


@pytest.mark.parametrize("build", [held_gradient, own_gradient, clicks, padded, normalized, mixed_precision])
def test_same_nodes(build: Callable[[], Step], tmp_path: Path) -> None:
    ours, theirs = (
        graph.nodes[(graph.nodes["step"] == 1) & (graph.nodes["node_type"] == "compute")][COLUMNS].astype(object)
        for graph in (capture(build), recorded(build, tmp_path))
    )
    assert ours.fillna("").to_numpy().tolist() == theirs.fillna("").to_numpy().tolist()
