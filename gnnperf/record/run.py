"""One recorded run of one workload: launched, recorded, marked broken if a rank fails."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from gnnperf.record import card
from gnnperf.record.launch import LINK, RankFailed, launch
from gnnperf.record.recorder import claim, record
from gnnperf.record.workloads.workload import Workload


@dataclass(frozen=True)
class Steps:
    """How many steps of each kind a run has."""

    warmup: int = 5
    unprofiled: int = 20
    profiled: int = 4
    execution_trace: bool = False


def record_run(run_dir: Path, workload: Workload, steps: Steps, *, world_size: int = 2, timeout_s: float = 120) -> None:
    """Record `workload` on `world_size` gloo ranks of this machine.

    Raises:
        RankFailed: a rank failed; `run_dir` says broken.
        InputError: `run_dir` holds a complete run or cannot be written.
    """
    claim(run_dir)
    try:
        launch(record_rank, (run_dir, workload, steps), world_size=world_size, timeout_s=timeout_s)
    except RankFailed as failure:
        about = card.Description(workload.kind, asdict(workload), batch=workload.batch, link=LINK)
        card.write_status(run_dir, about, card.BROKEN, str(failure))
        raise


def record_rank(run_dir: Path, workload: Workload, steps: Steps) -> None:
    """What one rank does."""
    trainer = workload.build()
    with record(
        run_dir,
        workload=workload.kind,
        parameters=asdict(workload),
        parallelism=workload.parallelism,
        batch=workload.batch,
        link=LINK,
        warmup_steps=steps.warmup,
        unprofiled_steps=steps.unprofiled,
        profiled_steps=steps.profiled,
        execution_trace=steps.execution_trace,
    ) as step:
        while not step.done:
            trainer.step()
            step()
