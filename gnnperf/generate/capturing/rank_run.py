"""One rank of a program, run on tensors without data: the profile of some of its steps, and what it communicated."""

import json
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as data_parallel
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.distributed import device_mesh
from torch.distributed.fsdp._fully_shard import _fsdp_init
from torch.testing._internal.distributed.fake_pg import FakeStore

from gnnperf.core import InputError
from gnnperf.generate.capturing.communication import SHARED, Communication, Issued
from gnnperf.record import PROFILER_WARMUP_STEPS, step_profiler

# The program's own events of one thread, and their begins and ends in order, without their times.
#
# An op that is run without data is dispatched once more, by its own name: what is in there is left out.
# What autograd does otherwise with tensors that hold no data is put right:
#
#     aten::linear | aten::addmm | aten::addmm: aten::empty_strided ...         ->   aten::linear | aten::addmm
#     LogSoftmaxBackward0 | aten::detach | aten::_log_softmax_backward_data       ->   without the detach
#     evaluate_function: AddBackward0 | aten::add                                 ->   aten::add_

Event = dict[str, Any]  # as Kineto writes it
# Ranges that the profiler itself adds, and those of dispatch modes: a program without them has none.
_NOT_OF_THE_PROGRAM = ("PythonDispatchMode", "PyTorch Profiler", "PythonSubclass", "Iteration Start",
                       "Record Window End")  # fmt: skip
_BUILT_IN_NODE = re.compile(r"\w*Backward\d+$")  # of autograd; a program's own functions have no number
# (node of autograd, op) -> the op that it runs where tensors hold data, and how many more scalars that takes
_IN_PLACE = {
    ("BinaryCrossEntropyWithLogitsBackward0", "aten::sub"): ("aten::sub_", 0),
    ("BinaryCrossEntropyWithLogitsBackward0", "aten::mul"): ("aten::mul_", 0),
    ("IndexBackward0", "aten::index_put"): ("aten::_index_put_impl_", 1),
}
# (node of autograd, op) that only tensors without data need: sparse gradients are otherwise taken, not copied.
_NOT_THERE = {("torch::autograd::AccumulateGrad", "aten::clone")}
_ENGINE = "autograd::engine::evaluate_function"


def program_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """Complete events of the program, in order of start, outer ones first."""
    own = [e for e in events if e.get("ph") == "X" and not str(e["name"]).startswith(_NOT_OF_THE_PROGRAM)]
    own.sort(key=lambda e: (e["ts"], -e["dur"], e.get("args", {}).get("External id", 0)))
    left_out_until, result, around = float("-inf"), list[Event](), list[Event]()
    for event in own:
        begin, end = event["ts"], event["ts"] + event["dur"]
        around = [e for e in around if e["ts"] + e["dur"] > begin]
        if begin < left_out_until:
            continue
        parent = str(around[-1]["name"]) if around else ""
        if event["name"] == SHARED and result[-1]["name"] == "aten::add_":
            result[-1] = {**result[-1], "name": "aten::add"}
        # Autograd takes out a tensor that it saved: one with data is taken as it is.
        unpacks = event["name"] == "aten::detach" and _BUILT_IN_NODE.match(parent) is not None
        if event["name"] in (parent, SHARED) or (parent, event["name"]) in _NOT_THERE or unpacks:
            left_out_until = end
            continue
        around.append(event)
        result.append(_as_real(event, parent))
    return tuple(result)


def _as_real(event: Event, parent: str) -> Event:
    """The event as it would be if tensors held data: where autograd may write in place, it does."""
    name = str(event["name"])
    if name == "aten::add" and parent.startswith(_ENGINE):
        return {**event, "name": "aten::add_"}
    if (parent, name) not in _IN_PLACE:
        return event
    (twin, scalars), args = _IN_PLACE[parent, name], event.get("args", {})
    more: dict[str, list[Any]] = {"Input Dims": [[]], "Input type": ["Scalar"], "Input Strides": [[]]}
    added = {key: args[key] + value * scalars for key, value in more.items() if key in args}
    return {**event, "name": twin, "args": {**args, **added}}


def boundaries(events: Sequence[Event]) -> Iterator[tuple[Event, bool]]:
    """Begins (true) and ends of sorted events; one that outlasts the event around it ends with it."""
    open_events: list[tuple[float, Event]] = []  # end, event
    for event in events:
        while open_events and open_events[-1][0] <= event["ts"]:
            yield open_events.pop()[1], False
        end = event["ts"] + event["dur"]
        if open_events:
            end = min(end, open_events[-1][0])
        open_events.append((end, event))
        yield event, True
    while open_events:
        yield open_events.pop()[1], False


# Where torch looks into tensors that hold no data, and what it does instead while a program is captured.


@contextmanager
def without_data() -> Iterator[None]:
    """While this lasts, modules of tensors without data can be moved, and DDP built and run on them.

    `Module.to` exchanges fake parameters and refuses those that something refers to weakly, which fake tensors always
    are. DDP compares shapes that ranks never sent; and it builds its buckets a second time, in the
    order of the first backward, from numbers that it reads back from a tensor. A device mesh reads its ranks from one.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.utils, "swap_tensors", _swapped))
        stack.enter_context(patch.object(data_parallel, "_verify_param_shape_across_processes"))
        stack.enter_context(patch.object(dist.Reducer, "_rebuild_buckets", _with_data(dist.Reducer._rebuild_buckets)))
        for module in (device_mesh, _fsdp_init):
            stack.enter_context(patch.object(module, "init_device_mesh", _with_data(device_mesh.init_device_mesh)))
        yield


def _swapped(one: torch.Tensor, other: torch.Tensor) -> None:
    """torch.utils.swap_tensors without its question for weak references: those still refer to `one`."""
    torch._C._swap_tensor_impl(one, other)
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__


def _with_data(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same on real tensors: small ones, and buckets whose memory is requested and never touched."""

    @wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        with fake_tensor.unset_fake_temporarily():
            return call(*args, **kwargs)

    return called


# What cannot be captured: steps that look at numbers, of which there are none.

_TORCH = ("/torch/", "gnnperf/generate/capturing/")
# How torch states that it looked for numbers outside of its ops (.numpy(), a C++ extension).
_LOOKED = ("not supported for tensor subclasses", "data is not allocated", "Not available for 'meta' device",
           "data pointer")  # fmt: skip


def refused(error: Exception, rank: int) -> InputError | None:
    """One message: which op, on which line of the program, and what to do; None: the error is about something else."""
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        result = "its result" if isinstance(error, DataDependentOutputException) else "the shape of its result"
        what = f"{str(error.func).removesuffix('.default')} needs numbers: {result}"
    elif any(words in str(error) for words in _LOOKED):
        what = "a tensor's memory is read: what follows"
    else:
        return None
    return InputError(
        f"{what} depends on values, and a captured step computes none",
        where=f"rank {rank}, {_line_of(error)}", allowed="steps whose ops and shapes follow from the program alone",
        remedy="give that step fixed sizes (pad what is routed, leave .item() and printing out), or record it with "
               "gnnperf record",
    )  # fmt: skip


def _line_of(error: BaseException) -> str:
    """The innermost line that is the program's own, by file name only: folders name people."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename.replace("\\", "/") for part in _TORCH)] or frames
    return f"{own[-1].filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{own[-1].lineno}"


Step = Callable[[], object]
Build = Callable[[], Step]
FIRST_STEPS = 2  # DDP orders its buckets in the first one, optimizers make their state


@dataclass(frozen=True)
class RankRun:
    """What one rank did."""

    rank: int  # which
    groups: tuple[tuple[int, ...], ...]  # ranks of its process groups, in order of creation
    # of the program in the profiled steps, as Kineto writes them, in order of start; and marks
    events: tuple[Event, ...]
    arrows: tuple[Event, ...]  # between forward and backward ops
    issued: Sequence[Issued]  # its collectives, of all steps, by number


def run_rank(build: Build, rank: int, world_size: int, steps: int) -> RankRun:
    """Build the program as this rank and run it."""
    communication = Communication()
    with _single_in_a_group(rank, world_size), without_data():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), communication:
                events = _profiled(build(), steps)
        except RuntimeError as error:  # what FakeTensorMode raises are such, too
            message = refused(error, rank)
            if message is None:
                raise
            raise message from error
        groups = tuple(tuple(ranks) for ranks in dist.distributed_c10d._world.pg_group_ranks.values())
    arrows = tuple(e for e in events if e.get("cat") == "fwdbwd")
    return RankRun(rank, groups, program_events(events), arrows, communication.issued)


def _profiled(step: Step, steps: int) -> list[Event]:
    for _ in range(FIRST_STEPS):
        step()
    profiler = step_profiler(steps)
    with profiler:
        for _ in range(PROFILER_WARMUP_STEPS + steps):
            step()
            profiler.step()
    with tempfile.TemporaryDirectory(prefix="gnnperf-capture-") as folder:
        path = Path(folder) / "rank.json"
        profiler.export_chrome_trace(str(path))
        result: list[Event] = json.loads(path.read_bytes())["traceEvents"]
        return result


@contextmanager
def _single_in_a_group(rank: int, world_size: int) -> Iterator[None]:
    """A process group in which this rank is the only one and all others seem to be there."""
    if dist.is_initialized():
        raise InputError("a process group is up already", where="capture", remedy="capture in a process of its own")
    hook = sys.excepthook  # the process group puts its own in, which states a rank before every line
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
