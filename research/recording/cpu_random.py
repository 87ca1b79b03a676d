"""Random programs, each another one: a network that is requested programs no one ran learns from many of them.

A seed draws what a program is made of: which ops, on which sizes, in which order. The plan begins with a few runs of
`cpu-gloo`: recorded again, they tell how far the machines of the two data sets are apart.
"""

from __future__ import annotations

from random import Random

from research.recording.cpu_gloo import STEPS
from research.recording.cpu_gloo_runs import FAST, MEDIUM, plain_runs
from research.recording.network import LOOPBACK, Link
from research.recording.plan import Plan
from research.recording.spec import RunSpec
from research.recording.workloads.random_graph import RandomGraph

SHARED_PERIOD = 12  # of so many runs of cpu-gloo one is recorded again
SEEDS = range(1001, 1161)  # those of cpu-gloo are smaller
NUM_OPS, SCALES = (8, 16, 24, 32, 48), (64_000, 256_000, 1_000_000)
BATCHES, IMAGES = (8, 16, 32, 64), (12, 16, 24, 32)
PRECISIONS, ACCUMULATIONS = (*("float32",) * 7, "bfloat16"), (*(1,) * 7, 2)
PLACES: tuple[tuple[int, Link], ...] = (*((2, LOOPBACK),) * 4, *((1, LOOPBACK),) * 2, (2, MEDIUM), (2, FAST))


def cpu_random() -> Plan:
    """The plan. All programs are random, so that no other kind of program is met by training on them."""
    shared = plain_runs()[::SHARED_PERIOD]
    drawn = tuple(map(drawn_run, SEEDS))
    return Plan(
        name="cpu-random",
        runs=(*shared, *drawn),
        steps=STEPS,
        splits={"programs": {"train": [run.name for run in drawn], "val": [], "test": []}},
        axes={"programs": "all are to be trained on, beside another data set; runs of that one are in no part"},
        repeats=1,
        min_gap_s=0.0,
    )


def drawn_run(seed: int) -> RunSpec:
    """A random program of random size, on one rank or two."""
    draw = Random(seed).choice
    program = RandomGraph(
        seed=seed, num_ops=draw(NUM_OPS), scale=draw(SCALES), batch=draw(BATCHES), image=draw(IMAGES),
        precision=draw(PRECISIONS), accumulation=draw(ACCUMULATIONS),
    )  # fmt: skip
    ranks, link = draw(PLACES)
    return RunSpec(program, world_size=ranks, link=link)
