"""Plans of gloo ranks on one machine: the embedded data set (programs, links, how they are split), and others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from research.recording.cpu_gloo_runs import SLOW, only_paired, pairs, plain_runs
from research.recording.plan import Plan, Split, split_by
from research.recording.run import RunSpec, Steps
from research.recording.workloads.transformer import Optimizer, Parallel, Transformer

RUN_PERIOD, RUN_VAL, RUN_TEST = 5, 4, 2  # of every five runs of a program, which is for what
DEMO_PERIOD = 6  # of so many runs the demonstration trains on one
VAL_PERIOD, VAL_PLACE = 5, 4  # of what an axis trains on, which is for validation
NUM_WIDTHS = 3  # a program with fewer has no size to hold out
HELD_OUT_PARALLELISM = ("tp", "row_wise")
STEPS = Steps(warmup=6, unprofiled=32, profiled=4)
AGAIN, SAME_RUNS_AS = "again", "run"  # axes of cpu-again and of cpu-gloo
# Weaker than those of cpu-gloo, so that cpu-again takes half an hour on a machine that is less steady; its noise floor
# shows what that costs.
AGAIN_MIN_GAP_S, AGAIN_MAX_DRIFT = 300.0, 0.1


def cpu_gloo() -> Plan:
    """The plan. Runs of each axis' test part differ from all others along that axis."""
    plain, paired = plain_runs(), pairs()
    kinds = tuple(dict.fromkeys(run.workload.kind for run in plain))
    return Plan(
        name="cpu-gloo",
        runs=(*plain, *only_paired(plain, paired)),
        steps=STEPS,
        pairs=paired,
        splits={
            "run": _by_run(plain),
            "demo": {part: names[::DEMO_PERIOD] for part, names in _by_run(plain).items()},
            "size": _by_size(plain),
            "workload": _held_out(plain, partial(_is_of_kind, "cnn")),
            **{f"workload-{kind}": _held_out(plain, partial(_is_of_kind, kind)) for kind in kinds},
            "link": _held_out(plain, lambda run: run.link == SLOW),
            "world_size": _held_out(plain, lambda run: run.world_size == 4),
            "parallelism": _held_out(plain, lambda run: parallelism(run) in HELD_OUT_PARALLELISM),
        },
        axes={
            "run": "configurations; those held out lie between trained ones in size",
            "demo": f"a {DEMO_PERIOD}th of `run`, for a quick look",
            "size": "widths, the largest of each program are held out; validation on the next smaller",
            "workload": "programs: the cnn is held out; validation by run, here and below",
            **{f"workload-{kind}": f"programs: {kind} is held out" for kind in kinds},
            "link": "rates: the slowest, 0.25 Gbit/s, is held out",
            "world_size": "ranks: 4 are held out; 1 and 2 are trained on",
            "parallelism": "how work is divided: tensor parallel and row-wise tables are held out",
        },
    )


def cpu_again() -> Plan:
    """Runs that the axis `run` of cpu-gloo does not train on, for another day or another machine.

    A network trained on the axis `run` has seen none of these runs, on whichever machine.
    """
    first = cpu_gloo()
    parts = {part: tuple(first.splits[SAME_RUNS_AS][part]) for part in ("val", "test")}
    held_out = {name for names in parts.values() for name in names}
    return Plan(
        name="cpu-again",
        runs=tuple(run for run in first.runs if run.name in held_out),
        steps=first.steps,
        splits={AGAIN: {"train": [], **parts}},
        axes={AGAIN: f"day and machine: what `{SAME_RUNS_AS}` of cpu-gloo validates and tests on, recorded again"},
        min_gap_s=AGAIN_MIN_GAP_S,
        max_drift=AGAIN_MAX_DRIFT,
    )


def parallelism(run: RunSpec) -> str:
    """How the program divides its work: ddp, fsdp, tp, pp, ep, table_wise, row_wise, column_wise."""
    workload = run.workload
    if hasattr(workload, "sharding"):
        return f"{workload.sharding}_wise"
    return "ep" if workload.kind == "moe" else str(getattr(workload, "parallel", "ddp"))


def _is_of_kind(kind: str, run: RunSpec) -> bool:
    return run.workload.kind == kind


def _by_run(runs: Sequence[RunSpec]) -> Split:
    places: dict[str, Iterator[int]] = defaultdict(count)
    parts = {RUN_VAL: "val", RUN_TEST: "test"}
    return split_by(runs, lambda run: parts.get(next(places[run.workload.kind]) % RUN_PERIOD, "train"))


def _by_size(runs: Sequence[RunSpec]) -> Split:
    widths: dict[str, list[int]] = {}
    for run in runs:
        widths.setdefault(run.workload.kind, []).append(run.workload.width)
    ordered = {kind: sorted(set(result)) for kind, result in widths.items()}

    def part_of(run: RunSpec) -> str:
        known = ordered[run.workload.kind]
        last = known[-2:] if len(known) >= NUM_WIDTHS else []
        return dict(zip(last, ("val", "test"), strict=False)).get(run.workload.width, "train")

    return split_by(runs, part_of)


def _held_out(runs: Iterable[RunSpec], is_test: Callable[[RunSpec], bool]) -> Split:
    runs = tuple(runs)
    retained = [run.name for run in runs if not is_test(run)]
    return {
        "train": [name for place, name in enumerate(retained) if place % VAL_PERIOD != VAL_PLACE],
        "val": retained[VAL_PLACE::VAL_PERIOD],
        "test": [run.name for run in runs if is_test(run)],
    }


# Steps of several lengths: transformers whose batches differ in length, and the same at one length. A prediction starts
# from the run at one length. The steps of the other run test its distribution.

LENGTHS = (64, 32, 96, 48, 128, 64, 192, 80)  # tokens per sample of the batches, in turn
FIXED = (64,)
LENGTH_STEPS = Steps(warmup=len(LENGTHS), unprofiled=32, profiled=2 * len(LENGTHS))  # every length twice in the trace
LENGTH_PROGRAMS = (
    (Transformer(layers=2, width=128), 2),
    (Transformer(layers=2, width=192, batch=4, causal=False), 1),
    (Transformer(layers=2, width=128, parallel=Parallel.TP), 2),
    (Transformer(layers=2, width=256, batch=4, parallel=Parallel.FSDP), 2),
    (Transformer(layers=1, width=256, checkpointing=True, optimizer=Optimizer.ADAMW), 1),
)  # program, ranks


def cpu_lengths() -> Plan:
    """The plan: every program at one length and at several."""
    runs = [RunSpec(replace(program, sequence=max(LENGTHS), lengths=lengths), ranks)
            for program, ranks in LENGTH_PROGRAMS for lengths in (FIXED, LENGTHS)]  # fmt: skip
    return Plan("cpu-lengths", tuple(runs), LENGTH_STEPS, splits={}, axes={}, min_gap_s=60.0, max_drift=0.05)
