"""`capture`: every rank of a program, one after the other, on one laptop -> ExecutionGraph.

build on rank r -> steps without data -> profile -> logical times -> Kineto text -> trace -> graph -> no labels

The profiler of torch sees the same ops, with the same shapes, whether their tensors hold data or not. So what is
captured goes through the door that recordings go through, and nodes, edges and features are made by the same code.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.core import InputError, require
from gnnperf.generate.capturing.logical_time import TICK_US, Timed, in_logical_time
from gnnperf.generate.capturing.rank_run import Build, Event, run_rank
from gnnperf.generate.capturing.works import Issued
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.hardware import Placement
from gnnperf.trace import RunTrace, read_run

# A captured rank as a Kineto file, with the ranges that gloo's threads would have left: trace -> graph reads on.

# What gloo calls its range. It has no reduce-scatter: all of it is reduced everywhere.
_RANGES: Mapping[str, str] = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_reduce_scatter_base_": "all_reduce", "c10d::reduce_scatter_": "all_reduce",
    "c10d::_allgather_base_": "all_gather", "c10d::allgather_": "all_gather",
    "c10d::alltoall_base_": "all_to_all", "c10d::alltoall_": "all_to_all", "c10d::broadcast_": "broadcast",
    "c10d::reduce_": "reduce", "c10d::gather_": "gather", "c10d::scatter_": "scatter", "c10d::barrier": "barrier",
    "c10d::send": "send", "c10d::recv_": "recv",
}  # fmt: skip
_TRANSPORT_THREAD = 1 << 30  # of the first group; programs have no such thread


def kineto_text(timed: Timed, world_size: int) -> bytes:
    """The file's content."""
    timed_events = [_at_its_time(event, timed) for event in timed.events]
    flows = _flows(timed)
    ranges = list(_ranges(timed))
    groups = [{"pg_name": str(i), "ranks": list(ranks)} for i, ranks in enumerate(timed.run.groups)]
    head = {"schemaVersion": 1, "record_shapes": 1, "baseTimeNanoseconds": 0, "deviceProperties": [],
            "distributedInfo": {"backend": "gloo", "rank": timed.run.rank, "world_size": world_size,
                                "pg_count": len(groups), "pg_config": groups}}  # fmt: skip
    return json.dumps({**head, "traceEvents": [*timed_events, *flows, *ranges]}).encode()


def _at_its_time(event: Event, timed: Timed) -> Event:
    begin, end = timed.clock.begin_us[id(event)], timed.clock.end_us[id(event)]
    return {**event, "ts": begin, "dur": end - begin}


def _flows(timed: Timed) -> list[Event]:
    """Arrows from forward to backward ops: both ends at the begins of their ops."""
    moved = {(e["tid"], e["ts"]): timed.clock.begin_us[id(e)] for e in timed.events}
    ends = [{**e, "ts": moved[e["tid"], e["ts"]]} for e in timed.run.arrows if (e["tid"], e["ts"]) in moved]
    both = {e["id"] for e in ends if e["ph"] == "s"} & {e["id"] for e in ends if e["ph"] == "f"}
    return [e for e in ends if e["id"] in both]


def _ranges(timed: Timed) -> Iterable[Event]:
    """One range per collective: from its issue to where it was waited for, or, where no one did so by name, at once."""
    main = next((e["tid"] for e in timed.events if str(e["name"]).startswith("ProfilerStep")), 0)
    threads: dict[tuple[int, ...], int] = {}
    for number, begin_us in timed.clock.issued_us.items():
        issued = timed.run.issued[number]
        thread = main if issued.peer is not None else threads.setdefault(issued.group, _TRANSPORT_THREAD + len(threads))
        end_us = timed.clock.done_us.get(number, begin_us + TICK_US / 2)
        begin_us += TICK_US / 4
        yield {"ph": "X", "cat": "user_annotation", "name": f"gloo:{_range_name(issued)}", "pid": 0, "tid": thread,
               "ts": begin_us, "dur": end_us - begin_us, "args": _arguments(issued)}  # fmt: skip


def _range_name(issued: Issued) -> str:
    if issued.op not in _RANGES:
        raise InputError(f"{issued.op} cannot be captured", where="capture", allowed=", ".join(sorted(_RANGES)),
                         remedy="call its plain form, or record the program with gnnperf record")  # fmt: skip
    return _RANGES[issued.op]


def _arguments(issued: Issued) -> dict[str, Any]:
    shapes: Sequence[Any] = [list(shape) for shape in issued.dims]
    result: dict[str, Any] = {"Input Dims": shapes, "Input type": list(issued.types)}
    if issued.peer is None:
        result |= {"Collective name": _RANGES[issued.op], "Group size": len(issued.group),
                  "Process Group Ranks": str(list(issued.group))}  # fmt: skip
    return result


# A graph of which nothing was measured.

_TIMES = ("start_us", "latency_us", "blocked_us")
_PROFILER = ("opened_ops", "opened_ranges")  # what a profiler records costs time; here none ran


def unlabeled(graph: ExecutionGraph) -> ExecutionGraph:
    """The same nodes and edges; every time unknown, and no cost of a profiler."""
    nothing = np.full(len(graph.nodes), np.nan)
    none = np.zeros(len(graph.nodes), dtype=np.int32)
    nodes = graph.nodes.assign(**dict.fromkeys(_TIMES, nothing), **dict.fromkeys(_PROFILER, none))
    edges: pd.DataFrame = graph.edges.assign(lag_us=np.nan)
    unknown = tuple(float("nan") for _ in graph.ranks)
    steps = tuple(
        replace(s, period_us=None, makespan_us=float("nan"), rank_start_us=unknown, rank_completion_us=unknown)
        for s in graph.steps
    )
    return replace(graph, nodes=nodes, edges=edges, steps=steps).validate()


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
    requested = tuple(range(world_size)) if ranks is None else tuple(sorted(set(ranks)))
    require(
        bool(requested) and requested[0] >= 0 and requested[-1] < world_size,
        "ranks",
        requested,
        f"some of 0 to {world_size - 1}",
    )
    runs = [run_rank(build, rank, world_size, steps) for rank in requested]
    with tempfile.TemporaryDirectory(prefix="gnnperf-capture-") as folder:
        for timed in in_logical_time(runs):
            (Path(folder) / f"rank_{timed.run.rank}.json").write_bytes(kineto_text(timed, world_size))
        return read_run(Path(folder), name=name)
