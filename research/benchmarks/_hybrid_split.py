"""Runs that the hybrid is judged by, apart from what it was fitted on. All in float32 where nothing else is stated.

train, val     transformers (every second one), mixtures of experts, policies: of the split `run`
thresholds     recommendation models (every second one): op families that training lacks, by which the numbers of
other dtype    the gate were chosen; three of them in bfloat16
test           seen: other runs of the programs of training; family: residual networks and random graphs, with op
               families that neither training nor thresholds have; dtype: transformers in bfloat16
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gnnperf.gnn.data.prepare import PreparedData, Step, prepare
from gnnperf.gnn.data.runs import read_runs, run_of
from gnnperf.gnn.data.splits import Split, read_split
from research.benchmarks._learned_jobs import data_config
from research.benchmarks._recorded_graphs import DATASET

TRAINED, MANY = ("gpt", "bert", "moe", "rl"), "gpt"
THRESHOLDS, OTHER_DTYPE, SEEN, FAMILY, DTYPE = "thresholds", "other dtype", "seen", "family", "dtype"
OTHERS = {THRESHOLDS: ("dlrm",), FAMILY: ("resnet", "random")}
BFLOAT16 = "bfloat16"


def hybrid_split() -> Split:
    """The first recording of every run."""
    runs = read_split(DATASET, "run")
    train, val = (_first(n for n in runs.part(part) if group_of(n) == SEEN) for part in ("train", "val"))
    many = [name for name in train if _program(name) == MANY]
    train = tuple(name for name in train if name not in many[1::2])
    judged = [*runs.val, *runs.test]
    every = [*runs.train, *judged]
    test = [
        *(n for n in runs.test if group_of(n) == SEEN),
        *[n for n in _first(judged) if group_of(n) == THRESHOLDS][::2],
        *(n for n in judged if group_of(n) == FAMILY),
        *(n for n in every if group_of(n) in (DTYPE, OTHER_DTYPE)),
    ]
    return Split("hybrid", train, val, _first(test))


def group_of(recording: str) -> str:
    """Which of the parts a recording judges; "" none."""
    program = _program(recording)
    if program in TRAINED:
        return DTYPE if BFLOAT16 in recording else SEEN
    result = next((group for group, programs in OTHERS.items() if program in programs), "")
    if BFLOAT16 not in recording:
        return result
    return OTHER_DTYPE if result == THRESHOLDS else ""


def load() -> PreparedData:
    """The split's data."""
    config = data_config("hybrid")
    return prepare(config, hybrid_split(), read_runs(DATASET, Path(config.cache_dir).expanduser(), None, None))


def of_group(data: PreparedData, group: str) -> list[Step]:
    """Steps that only judge, of one group."""
    return [step for step in data.steps["test"] if group_of(step.run) == group]


def _program(recording: str) -> str:
    return recording.split("_")[0]


def _first(recordings: Iterable[str]) -> tuple[str, ...]:
    result: dict[str, str] = {}
    for name in recordings:
        result.setdefault(run_of(name), name)
    return tuple(result.values())
