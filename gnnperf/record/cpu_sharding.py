"""One recorded configuration per problem of placing tables: what placements nobody ran are predicted from."""

from __future__ import annotations

from gnnperf.record.plan import Plan
from gnnperf.record.run import Steps
from gnnperf.record.sharding_problems import problems
from gnnperf.record.spec import RunSpec


def cpu_sharding() -> Plan:
    """The plan: every problem's recorded placement on two ranks of this machine."""
    runs = tuple(RunSpec(problem.recorded) for problem in problems())
    return Plan(
        name="cpu-sharding",
        runs=runs,
        steps=Steps(warmup=6, unprofiled=32, profiled=8),
        splits={"placements": {"train": [], "val": [], "test": [run.name for run in runs]}},
        axes={"placements": "all serve the comparison of placements (placements.json), for good"},
        repeats=1,
        min_gap_s=0.0,
    )
