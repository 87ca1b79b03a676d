"""One recorded run: a program, its ranks, what they talk over, and at most one known disturbance.

It is launched, recorded, and marked broken if a rank fails.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch.distributed as dist

from gnnperf.record import card, record
from gnnperf.record.launcher import RankFailed, conditions
from research.recording.network import LOOPBACK, Link, Transport, launch_over
from research.recording.workloads.transformer import Parallel
from research.recording.workloads.workload import At, Place, Workload, nothing


@dataclass(frozen=True)
class Sleep:
    """One rank sleeps once per step."""

    rank: int  # which
    place: Place  # where in the step
    sleep_us: float  # how long

    @property
    def name(self) -> str:
        """Short: sleep-r1-backward-5ms."""
        return f"sleep-r{self.rank}-{self.place}-{self.sleep_us / 1e3:g}ms"

    @property
    def edit(self) -> dict[str, object]:
        """What it does to the graph of the undisturbed run."""
        return {"rank": self.rank, "place": str(self.place), "sleep_us": self.sleep_us}


@dataclass(frozen=True)
class RunSpec:
    """One run of a plan; recorded several times."""

    workload: Workload  # the program and its sizes
    world_size: int = 2  # number of ranks
    link: Link = LOOPBACK  # what they talk over
    sleep: Sleep | None = None  # the disturbance; None none

    @property
    def name(self) -> str:
        """Unique within a plan, and the name of the run's folder: dlrm_t8_r100k_d32_b256_x2_lo."""
        parts = [self.workload.name, f"x{self.world_size}", self.link.name]
        return "_".join(parts + ([self.sleep.name] if self.sleep else []))


@dataclass(frozen=True)
class Steps:
    """How many steps of each kind a run has."""

    warmup: int = 5
    unprofiled: int = 20
    profiled: int = 4
    execution_trace: bool = False


def record_run(run_dir: Path, spec: RunSpec, steps: Steps, *, repeat: int = 1, timeout_s: float = 180) -> None:
    """Record `spec` on gloo ranks of this machine."""
    card.reserve(run_dir)
    try:
        launch_over(spec.link, record_rank, (run_dir, spec, steps, repeat), world_size=spec.world_size,
                    timeout_s=timeout_s)  # fmt: skip
    except RankFailed as failure:
        workload = spec.workload
        about = card.Description(workload.kind, asdict(workload), batch=workload.batch,
                                 link=spec.link.facts, repeat=repeat)  # fmt: skip
        card.write_status(run_dir, about, card.BROKEN, str(failure))
        raise


def record_rank(run_dir: Path, spec: RunSpec, steps: Steps, repeat: int) -> None:
    workload = spec.workload
    trainer = workload.build()
    transport = transport_of(spec)
    transport.put_first()  # once the program has made its groups, which have threads of their own
    at, sleep = _disturbance(spec.sleep), {"sleep": asdict(spec.sleep)} if spec.sleep else {}
    with record(
        run_dir,
        workload=workload.kind,
        parameters=asdict(workload),
        parallelism=workload.parallelism,
        precision=getattr(workload, "precision", "float32"),
        batch=workload.batch,
        link=spec.link.facts,
        repeat=repeat,
        conditions={"transport_scheduling": str(transport), **conditions(), **sleep},
        index_statistics=getattr(trainer, "index_statistics", ()),
        warmup_steps=steps.warmup,
        unprofiled_steps=steps.unprofiled,
        profiled_steps=steps.profiled,
        execution_trace=steps.execution_trace,
    ) as step:
        while not step.done:
            trainer.step(at)
            step()


def transport_of(spec: RunSpec) -> Transport:
    """Real time, but for programs that send and receive.

    There gloo's real-time thread waits in a loop for a lock that the main thread holds, whom it keeps off the core,
    until the kernel ends it after 0.95 s.
    """
    pipeline = getattr(spec.workload, "parallel", None) == Parallel.PP
    return Transport.SHORT_SLICE if pipeline else Transport.REAL_TIME


def _disturbance(sleep: Sleep | None) -> At:
    if sleep is None or sleep.rank != dist.get_rank():
        return nothing

    def at(place: Place) -> None:
        if place == sleep.place:
            time.sleep(sleep.sleep_us / 1e6)

    return at
