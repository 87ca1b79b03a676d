"""`capture`: every rank of a program, one after the other, on one laptop -> ExecutionGraph.

build on rank r -> steps without data -> profile -> logical times -> Kineto text -> trace -> graph -> no labels

The profiler of torch sees the same ops, with the same shapes, whether their tensors hold data or not. So what is
captured goes through the door that recordings go through, and nodes, edges and features are made by the same code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gnnperf.core import require
from gnnperf.generate.capturing.kineto_text import kineto_text
from gnnperf.generate.capturing.logical_time import in_logical_time
from gnnperf.generate.capturing.rank_run import Build, run_rank
from gnnperf.generate.capturing.unlabeled import unlabeled
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.hardware import Placement
from gnnperf.trace import RunTrace, read_run


def capture(
    build: Build,
    world_size: int = 1,
    *,
    name: str = "captured",
    ranks: Iterable[int] | None = None,
    steps: int = 2,
    placement: Placement | None = None,
) -> ExecutionGraph:
    """The graph of a training program that never runs: nothing is computed, nothing is sent, no GPU is needed.

    Args:
        build: makes the model, its wrappers (DDP, FSDP, ...), the optimizer and the inputs as one rank does, and
            returns its training step, a function without arguments. Called once per rank, with a process group up:
            `torch.distributed.get_rank()` says which rank it is. Everything must be made inside.
        world_size: number of ranks.
        name: of the graph.
        ranks: which ranks are captured; None all. The others' parts of collectives are then unknown.
        steps: how many steps the graph holds; two are run before them.
        placement: hosts and links of the ranks; None unknown.

    Returns:
        Nodes and edges as of a recording on CPU ranks that talk over gloo; every latency, start and lag is NaN.

    Raises:
        InputError: a setting cannot be, or a step depends on values of tensors.
    """
    return replace(unlabeled(build_graph(captured_run(build, world_size, name, ranks, steps))), placement=placement)


def captured_run(
    build: Build, world_size: int, name: str = "captured", ranks: Iterable[int] | None = None, steps: int = 2
) -> RunTrace:
    """The trace behind a captured graph, in logical times; arguments and errors as of `capture`."""
    require(world_size >= 1, "world_size", world_size, "a whole number >= 1")
    require(steps >= 1, "steps", steps, "a whole number >= 1")
    asked = tuple(range(world_size)) if ranks is None else tuple(sorted(set(ranks)))
    require(bool(asked) and asked[0] >= 0 and asked[-1] < world_size, "ranks", asked, f"some of 0 to {world_size - 1}")
    runs = [run_rank(build, rank, world_size, steps) for rank in asked]
    with tempfile.TemporaryDirectory(prefix="gnnperf-capture-") as folder:
        for timed in in_logical_time(runs):
            (Path(folder) / f"rank_{timed.run.rank}.json").write_bytes(kineto_text(timed, world_size))
        return read_run(Path(folder), name=name)
