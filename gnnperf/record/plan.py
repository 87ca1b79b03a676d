"""A plan: which runs a data set consists of, and how they are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnnperf.record.run import Steps
from gnnperf.record.workloads.workload import Workload

Split = Mapping[str, Sequence[str]]  # train, val, test -> names of runs


@dataclass(frozen=True)
class Plan:
    """A data set to record.

    Attributes:
        name: of the data set, and of its folder.
        workloads: one run each, recorded in this order; names are unique.
        steps: of every run.
        splits: axis -> parts; a run is in one part of an axis only.
        axes: axis -> what differs between its parts, for the card.
        world_size: ranks of every run.
        max_drift: of the probe's median between before and after a run; beyond it the run is rejected.
        max_attempts: how often a rejected run is recorded again before the plan goes on without it.
    """

    name: str
    workloads: tuple[Workload, ...]
    steps: Steps
    splits: Mapping[str, Split]
    axes: Mapping[str, str]
    world_size: int = 2
    max_drift: float = 0.05
    max_attempts: int = 4
