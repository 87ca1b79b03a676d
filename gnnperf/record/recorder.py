"""`record`: a few lines in any training script that leave a trace per rank and a card in a run directory.

with record("runs/mine", workload="gpt", parameters={"layers": 12}, parallelism={"dp": 8}) as step:
    while not step.done:
        train_one_batch()
        step()
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import torch.distributed as dist

from gnnperf.core import InputError, files, untrusted
from gnnperf.record import card, host_state, machine, profiler_cost
from gnnperf.record.card import Description
from gnnperf.record.step_clock import garbage_set_aside
from gnnperf.record.step_recorder import StepRecorder, Stretches

# Take out of trace files what they say about the machine and its user.
#
# Kineto writes a header of metadata (`host_name` among it), the events, and the path it was written to (`traceName`).
# Header keys are kept by a list of what is wanted, so that a key a later version adds is dropped, not published.

EVENTS = b'"traceEvents": ['
KINETO_KEYS = ("schemaVersion", "deviceProperties", "distributedInfo", "record_shapes", "trace_id", "displayTimeUnit",
               "baseTimeNanoseconds", "cuda_runtime_version", "cuda_driver_version", "cupti_version")  # fmt: skip
EXECUTION_TRACE_KEYS = ("schema", "nodes")  # left out: process number and date


def kineto_without_environment(trace: bytes) -> bytes:
    """The same trace with the wanted header keys and the events only."""
    start = trace.index(EVENTS)
    end = trace.rindex(b"]")
    header = json.loads(trace[:start] + EVENTS + b"]}")
    retained = json.dumps({key: header[key] for key in KINETO_KEYS if key in header})
    return retained[:-1].encode() + b',\n"traceEvents": [' + trace[start + len(EVENTS) : end] + b"]}\n"


PEERS_TIMEOUT_S = 120.0  # how long rank 0 waits for the other ranks' files


@contextmanager
def record(
    run_dir: str | Path,
    *,
    workload: str = "",
    parameters: Mapping[str, object] | None = None,
    parallelism: Mapping[str, int] | None = None,
    precision: str = "float32",
    batch: int | None = None,
    link: Mapping[str, object] | None = None,
    repeat: int | None = None,
    conditions: Mapping[str, object] | None = None,
    index_statistics: Sequence[Mapping[str, object]] = (),
    warmup_steps: int = 5,
    unprofiled_steps: int = 20,
    profiled_steps: int = 5,
    execution_trace: bool = True,
) -> Iterator[StepRecorder]:
    """Record a training run: `with record(run_dir, ...) as step:`, and `step()` at the end of every training step.

    Every rank calls it, with the same arguments and after the process group is up. Train until `step.done`; what runs
    after that is not recorded. If fewer steps run, or one raises, the run is marked broken. Objects that exist before
    the first step are left out of garbage collections until the end.

    Args:
        run_dir: gets `rank_<r>.kineto.json.gz`, `rank_<r>.et.json.gz` (unless not wanted) and `run.json`. All ranks
            must see the same directory.
        workload: which program, for the card.
        parameters: its sizes; JSON values, for the card.
        parallelism: ranks by kind (dp, tp, pp, ep), for the card.
        precision: dtype of the arithmetic, for the card.
        batch: samples per rank and step, for the card.
        link: what the ranks talk over, for the card; None: what can be seen of it.
        repeat: which recording of the same run this is, from 1, for the card.
        conditions: anything else under which it runs; JSON values, for the card.
        index_statistics: of each embedding table that this rank looks up; JSON values, for the card.
        warmup_steps: steps dropped first.
        unprofiled_steps: steps timed without the profiler.
        profiled_steps: steps timed and traced.
        execution_trace: also write the execution trace (which tensors each op reads and writes), of one more step.

    Yields:
        The function that marks the end of a step.

    Raises:
        InputError: a number of steps is negative or none is profiled, the card's values are not JSON, the directory
            already holds a complete run or cannot be written, or fewer steps ran than were requested.
    """
    stretches = Stretches(warmup_steps, unprofiled_steps, profiled_steps)
    about = Description(
        workload, parameters or {}, parallelism or {}, precision, batch, link or {}, repeat, conditions or {}
    )
    tables = {"index_statistics": [dict(table) for table in index_statistics]} if index_statistics else {}
    card.check(tables)
    rank, world_size = machine.rank_and_world_size()
    folder = _open(Path(run_dir), about, rank)
    try:
        began = {"recorded_at": card.now()}
        with garbage_set_aside(), closing(StepRecorder(stretches, execution_trace=execution_trace)) as step:
            yield step
            _finish(step, folder, {**began, **machine.placement(), "backend": machine.backend(), **tables}, rank)
        if rank == 0:
            card.write_complete(folder, about, card.await_parts(folder, world_size, PEERS_TIMEOUT_S))
    except BaseException as error:
        # Of other people's errors the kind only: their text may hold paths and data.
        why = error.what if isinstance(error, InputError) else type(error).__name__
        card.write_status(folder, about, card.BROKEN, f"rank {rank}: {why}")
        raise


def _open(folder: Path, about: Description, rank: int) -> Path:
    """The run directory, without what an earlier attempt of this rank left in it."""
    card.reserve(folder)
    with untrusted.reading(folder, "cannot be written"):
        for name in (card.trace_name(rank), card.execution_trace_name(rank), card.part_name(rank)):
            (folder / name).unlink(missing_ok=True)
        if rank == 0:
            card.write_status(folder, about, card.RECORDING)
    if dist.is_available() and dist.is_initialized():
        machine.barrier()  # no rank's earlier files are left when rank 0 begins to look for new ones
    return folder


def _finish(step: StepRecorder, folder: Path, place: Mapping[str, object], rank: int) -> None:
    """Write this rank's traces and, last, its part of the card."""
    if not step.done:
        remedy = "call step() at the end of every training step until step.done; request fewer steps of a short program"
        raise InputError(f"{step.steps_done} of {step.total_steps} steps ran", where=str(folder), remedy=remedy)
    measured = {"peak_memory": step.peak_memory(), **step.step_times()}
    measured["profiler_cost"] = profiler_cost.measure()
    ops = step.execution_trace()
    try:
        files.write_gzip(folder / card.trace_name(rank), kineto_without_environment(step.kineto_trace()))
        if ops is not None:
            retained = {key: value for key, value in json.loads(ops).items() if key in EXECUTION_TRACE_KEYS}
            files.write_gzip(folder / card.execution_trace_name(rank), json.dumps(retained).encode())
        # The host's facts are retained once per host.
        part = {**place, "host_facts": host_state.host_facts(), **machine.device_clocks(), **measured}
        files.write_json(folder / card.part_name(rank), part)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(folder)) from error
