"""Tiny programs whose ops can be listed by hand; small steps, captured and run, have the same ops in the same order."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from gnnperf.core.errors import InputError
from gnnperf.generate.capturing import capture
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.record.step_recorder import PROFILER_WARMUP_STEPS, step_profiler
from gnnperf.trace import read_run

Step = Callable[[], object]


def training_step(model: nn.Module) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    rows = torch.ones(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()

    return step


def linear() -> Step:
    return training_step(nn.Linear(8, 2, bias=False))


def data_parallel() -> Step:
    layers = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False))
    return training_step(DistributedDataParallel(layers))


def nodes_of(graph: ExecutionGraph, node_type: str, rank: int = 0) -> list[tuple[str, str]]:
    nodes = graph.nodes[graph.nodes["step"] == 1]
    mine = nodes[(nodes["node_type"] == node_type) & (nodes["rank"] == rank)]
    return list(zip(mine["op_name"].astype(str), mine["phase"].astype(str), strict=True))


def test_one_rank() -> None:
    graph = capture(linear)
    # [4, 8] x [8, 2]; the gradient of the weight only: the inputs need none
    assert nodes_of(graph, "compute") == [
        ("aten::linear", "forward"), ("aten::sum", "forward"), ("aten::ones_like", "forward"),
        ("aten::mm", "backward"), ("aten::_fused_sgd_", "optimizer"),
    ]  # fmt: skip
    step = graph.step(1).nodes
    products = step[step["op_name"].astype(str).isin(["aten::linear", "aten::mm"]) & (step["node_type"] == "compute")]
    assert products["flops"].tolist() == [2 * 4 * 8 * 2, 2 * 2 * 4 * 8]
    assert products["input_dims"].tolist() == ["[[4,8],[2,8],[]]", "[[2,4],[4,8]]"]
    assert products["dtype"].tolist() == ["float32", "float32"]


def test_data_parallel_sums_one_bucket() -> None:
    graph = capture(data_parallel, 2)
    transfers = graph.nodes[(graph.nodes["node_type"] == "collective") & (graph.nodes["step"] == 1)]
    assert transfers["collective"].tolist() == ["all_reduce"]
    assert transfers["message_bytes"].tolist() == [(8 * 8 + 2 * 8) * 4.0]
    assert transfers["group_size"].tolist() == [2]
    relations = graph.step(1).edges["relation"].value_counts()
    assert (relations["joins"], relations["releases"]) == (2, 2)
    assert nodes_of(graph, "compute", 0) == nodes_of(graph, "compute", 1)


def test_wait_is_where_the_program_waits() -> None:
    def build() -> Step:
        rows = torch.ones(16)

        def step() -> None:
            work = dist.all_reduce(rows, async_op=True)
            assert work is not None
            torch.ones(4, 4).mm(torch.ones(4, 4))
            work.wait()
            rows.exp()

        return step

    step = capture(build, 2).step(1)
    exits = step.nodes.index[(step.nodes["node_type"] == "comm") & (step.nodes["segment"] == "exit")]
    waits = step.edges[(step.edges["relation"] == "waits") & step.edges["src"].isin(exits)]
    assert [str(name) for name in step.nodes["op_name"].iloc[waits["dst"]]] == ["aten::exp", "aten::exp"]


def test_send_and_receive_are_one_transfer() -> None:
    def build() -> Step:
        rows = torch.ones(16)

        def step() -> None:
            if dist.get_rank() == 0:
                dist.send(rows, 1)
            else:
                dist.recv(rows, 0)

        return step

    graph = capture(build, 2)
    transfers = graph.nodes[(graph.nodes["node_type"] == "collective") & (graph.nodes["step"] == 1)]
    assert transfers["collective"].tolist() == ["send_recv"]
    assert transfers["message_bytes"].tolist() == [64.0]


@pytest.mark.parametrize(
    ("look", "error", "message"),
    [
        (lambda rows: rows.sum().item(), InputError, r"rank 0, test_capture.py:\d+: aten._local_scalar_dense needs"),
        (lambda rows: rows.nonzero(), InputError, r"rank 0, test_capture.py:\d+: aten.nonzero needs numbers"),
        (lambda rows: rows.numpy(), InputError, r"rank 0, test_capture.py:\d+: a tensor's memory is read"),
        (lambda rows: dist.recv(rows, 1 - dist.get_rank()), InputError, "wait for each other"),
        (lambda rows: rows.mm(rows), RuntimeError, r"2D|matri[cx]"),  # the program's own
    ],
)
def test_what_depends_on_values_or_fails_is_refused(
    look: Callable[[torch.Tensor], object], error: type[Exception], message: str
) -> None:
    def build() -> Step:
        rows = torch.ones(4)
        return lambda: look(rows)

    with pytest.raises(error, match=message):
        capture(build, 2)


def test_only_some_ranks() -> None:
    graph = capture(data_parallel, 1024, ranks=[3])
    assert (graph.ranks, graph.world_size) == ((3,), 1024)
    assert graph.nodes["segment"].eq("peer_wait").any()


@pytest.mark.parametrize(("settings", "key"), [({"world_size": 0}, "world_size"), ({"steps": 0}, "steps"),
                                               ({"world_size": 2, "ranks": [2]}, "ranks")])  # fmt: skip
def test_settings_that_cannot_be(settings: dict[str, object], key: str) -> None:
    with pytest.raises(InputError, match=key):
        capture(linear, **settings)  # type: ignore[arg-type]


def test_process_is_left_as_it_was() -> None:
    swap, rebuild = torch.utils.swap_tensors, dist.Reducer._rebuild_buckets
    capture(data_parallel, 2)
    assert not dist.is_initialized()
    assert (torch.utils.swap_tensors, dist.Reducer._rebuild_buckets) == (swap, rebuild)


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
