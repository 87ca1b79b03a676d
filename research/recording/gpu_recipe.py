"""The recipe for one CUDA GPU: calibration, training runs at real sizes, interventions; any prefix of it is of use.

Written for an H200 and 25 minutes in calls of at most 10 (`--minutes` ends one, `--resume` goes on). One GPU has no
peers: there are no NCCL transfers in this set, and no links. Eager runs come first, then CUDA graphs and torch.compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, zip_longest

from research.recording.plan import Change, Pair, Plan, Split
from research.recording.run import Steps
from research.recording.spec import RunSpec, Sleep
from research.recording.workloads.cnn import Cnn, Layout
from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.moe import Moe
from research.recording.workloads.rl import Rl
from research.recording.workloads.transformer import Transformer
from research.recording.workloads.workload import Place, Workload

PRECISIONS = ("bfloat16", "float32")
RUN_PERIOD, RUN_VAL, RUN_TEST = 5, 4, 2  # of every five runs, which is for what
STEPS = Steps(warmup=8, unprofiled=24, profiled=4)
REPEATED_OP = {"transformer": "aten::linear", "cnn": "aten::conv2d", "dlrm": "aten::bmm", "moe": "aten::bmm"}
CALIBRATE_MINUTES = 3.0
TIMES = 9  # a repeated op runs

TRANSFORMER = tuple(
    Transformer(layers=layers, width=width, sequence=sequence, batch=batch, vocabulary=32_000, precision=precision)
    for layers, width, sequence, batch in ((4, 1024, 1024, 8), (12, 768, 512, 16), (8, 2048, 1024, 4),
                                           (2, 4096, 2048, 2), (24, 1024, 512, 8), (4, 1024, 2048, 4))
    for precision in PRECISIONS
)  # fmt: skip
CNN = tuple(
    Cnn(blocks=blocks, channels=64, image=224, batch=batch, layout=Layout.BOTTLENECK, precision=precision)
    for blocks, batch in ((3, 32), (3, 128), (2, 64))
    for precision in PRECISIONS
)
DLRM = tuple(
    Dlrm(tables=tables, rows=rows, dim=dim, batch=batch, pooling=pooling, skew=skew, bottom=(512, 256),
         top=(1024, 512, 256))
    for tables, rows, dim, batch, pooling, skew in (
        (8, 1_000_000, 64, 4096, 8, 4.0), (26, 1_000_000, 128, 8192, 4, 4.0), (26, 1_000_000, 128, 8192, 4, 1.0),
        (16, 4_800_000, 128, 8192, 8, 1.0),  # 39 GB of tables
        (8, 4_000_000, 64, 16384, 16, 4.0),
    )
)  # fmt: skip
OTHERS = (
    Moe(layers=4, width=1024, experts=8, sequence=512, batch=8, hidden=4096, precision="bfloat16"),
    Moe(layers=2, width=2048, experts=8, sequence=512, batch=4, hidden=4096, top=2, precision="bfloat16"),
    Rl(hidden=256, num_envs=1024, horizon=16, vectorized=True),
)
PLACES = (Place.START, Place.BACKWARD, Place.OPTIMIZER)


@dataclass(frozen=True)
class Programs:
    """What the recipe runs.

    Attributes:
        eager: in turns, those of one program in one group.
        accelerated: captured in CUDA graphs or compiled; last, since their preparation takes long.
        paired: programs whose interventions are recorded.
        sleeps: what they are disturbed by, in turns.
    """

    eager: Sequence[Sequence[Workload]]
    accelerated: Sequence[Workload]
    paired: Sequence[Workload]
    sleeps: Sequence[Sleep]


REAL = Programs(
    eager=(TRANSFORMER, CNN, DLRM, OTHERS),
    accelerated=tuple(
        changed
        for program in (TRANSFORMER[0], TRANSFORMER[2], CNN[0])
        for changed in (replace(program, cuda_graph=True), replace(program, compile=True))
    ),
    paired=(TRANSFORMER[0], TRANSFORMER[2], CNN[0], DLRM[0]),
    sleeps=tuple(Sleep(0, place, sleep_us=20_000.0) for place in PLACES),
)


def gpu(programs: Programs = REAL) -> Plan:
    """The plan: half of the eager runs, the interventions, the other half, then what is captured and compiled."""
    eager = [_isolated(w) for w in chain.from_iterable(zip_longest(*programs.eager)) if w is not None]
    accelerated = [_isolated(workload) for workload in programs.accelerated]
    pairs = tuple(_pairs(programs))
    known = [*eager[: len(eager) // 2], *(run for pair in pairs for run in (pair.a, pair.b)), *eager, *accelerated]
    return Plan(
        name="gpu", runs=tuple(dict.fromkeys(known)), steps=STEPS, pairs=pairs, min_gap_s=0.0,
        calibrate_minutes=CALIBRATE_MINUTES,
        splits={"run": _by_run([*eager, *accelerated])},
        axes={"run": "configurations; those held out lie between trained ones in size"},
    )  # fmt: skip


def _isolated(workload: Workload) -> RunSpec:
    return RunSpec(workload, world_size=1)


def _pairs(programs: Programs) -> Iterable[Pair]:
    """Something that only waits is put into the step; an op is repeated."""
    for workload, sleep in zip(programs.paired, cycle(programs.sleeps), strict=False):
        a = _isolated(workload)
        yield Pair(Change.SLEEP, a, replace(a, sleep=sleep), sleep.edit)
        repeating = _isolated(replace(workload, repeats=TIMES))  # type: ignore[type-var]
        yield Pair(Change.REPEAT, a, repeating, {"op": REPEATED_OP[workload.kind], "times": TIMES, "rank": None})


def _by_run(runs: Sequence[RunSpec]) -> Split:
    split: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for place, run in enumerate(runs):
        split[{RUN_VAL: "val", RUN_TEST: "test"}.get(place % RUN_PERIOD, "train")].append(run.name)
    return split
