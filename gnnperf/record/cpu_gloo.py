"""The plan of the embedded data set: two gloo ranks on one machine, three training programs, forty sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from gnnperf.record.plan import Plan, Split
from gnnperf.record.run import Steps
from gnnperf.record.workloads.cnn import Cnn
from gnnperf.record.workloads.dlrm import Dlrm
from gnnperf.record.workloads.transformer import Transformer
from gnnperf.record.workloads.workload import Workload

# Ordered by width, then by work: the split by size cuts by width, the split by run takes every fifth.
DLRM = (
    Dlrm(tables=4, rows=10_000, dim=16, batch=256),
    Dlrm(tables=8, rows=10_000, dim=16, batch=512),
    Dlrm(tables=8, rows=100_000, dim=16, batch=256),
    Dlrm(tables=4, rows=100_000, dim=16, batch=1024),
    Dlrm(tables=12, rows=50_000, dim=16, batch=512),
    Dlrm(tables=4, rows=400_000, dim=16, batch=2048),
    Dlrm(tables=8, rows=100_000, dim=32, batch=256),
    Dlrm(tables=4, rows=100_000, dim=32, batch=512),
    Dlrm(tables=4, rows=400_000, dim=32, batch=1024),
    Dlrm(tables=8, rows=100_000, dim=32, batch=1024),
    Dlrm(tables=12, rows=100_000, dim=32, batch=512),
    Dlrm(tables=6, rows=200_000, dim=32, batch=2048),
    Dlrm(tables=4, rows=100_000, dim=48, batch=512),
    Dlrm(tables=8, rows=100_000, dim=48, batch=1024),
    Dlrm(tables=8, rows=200_000, dim=64, batch=512),
    Dlrm(tables=4, rows=100_000, dim=64, batch=2048),
)
TRANSFORMER = (
    Transformer(layers=2, width=64, sequence=64, batch=4),
    Transformer(layers=4, width=64, sequence=64, batch=8, causal=False),
    Transformer(layers=2, width=64, sequence=128, batch=8),
    Transformer(layers=1, width=128, sequence=64, batch=8),
    Transformer(layers=2, width=128, sequence=64, batch=8),
    Transformer(layers=2, width=128, sequence=128, batch=8, causal=False),
    Transformer(layers=1, width=192, sequence=64, batch=8),
    Transformer(layers=2, width=192, sequence=64, batch=8, causal=False),
    Transformer(layers=2, width=256, sequence=64, batch=4),
    Transformer(layers=1, width=256, sequence=128, batch=8, causal=False),
    Transformer(layers=1, width=320, sequence=64, batch=8),
    Transformer(layers=2, width=384, sequence=64, batch=4, causal=False),
)
CNN = (
    Cnn(blocks=1, channels=8, image=32, batch=16),
    Cnn(blocks=2, channels=8, image=24, batch=16),
    Cnn(blocks=1, channels=8, image=32, batch=48),
    Cnn(blocks=1, channels=16, image=24, batch=16),
    Cnn(blocks=1, channels=16, image=32, batch=16),
    Cnn(blocks=2, channels=16, image=32, batch=16),
    Cnn(blocks=1, channels=16, image=32, batch=40),
    Cnn(blocks=1, channels=24, image=24, batch=16),
    Cnn(blocks=1, channels=24, image=32, batch=24),
    Cnn(blocks=1, channels=32, image=32, batch=16),
    Cnn(blocks=1, channels=48, image=24, batch=16),
    Cnn(blocks=1, channels=48, image=32, batch=16),
)
PROGRAMS: tuple[Sequence[Workload], ...] = (DLRM, TRANSFORMER, CNN)

VAL_WIDTHS = {"dlrm": (48,), "transformer": (256,), "cnn": (32,)}
TEST_WIDTHS = {"dlrm": (64,), "transformer": (320, 384), "cnn": (48,)}
RUN_PERIOD, RUN_VAL, RUN_TEST = 5, 4, 2  # of every five runs of a program, which is for what
STEPS = Steps(warmup=6, unprofiled=24, profiled=4)


def cpu_gloo() -> Plan:
    """The plan. Programs take turns, so that a slow drift of the machine does not become a property of one of them."""
    turns = chain.from_iterable(zip_longest(*PROGRAMS))
    return Plan(
        name="cpu-gloo",
        workloads=tuple(workload for workload in turns if workload is not None),
        steps=STEPS,
        splits={"run": _by_run(), "size": _by_size(), **{f"workload-{p[0].kind}": _by_workload(p) for p in PROGRAMS},
                "workload": _by_workload(CNN)},
        axes={
            "run": "configurations; those held out lie between trained ones in size",
            "size": "widths: dlrm dim, transformer width, cnn channels; those held out are larger than any trained one",
            "workload": "programs: the cnn is held out; validation is by run",
            "workload-dlrm": "programs: the dlrm is held out; validation is by run",
            "workload-transformer": "programs: the transformer is held out; validation is by run",
            "workload-cnn": "the same as workload",
        },
    )  # fmt: skip


def _by_run() -> Split:
    places = [(place % RUN_PERIOD, workload) for program in PROGRAMS for place, workload in enumerate(program)]
    return {
        "train": [w.name for place, w in places if place not in (RUN_VAL, RUN_TEST)],
        "val": [w.name for place, w in places if place == RUN_VAL],
        "test": [w.name for place, w in places if place == RUN_TEST],
    }


def _by_size() -> Split:
    everything = list(chain.from_iterable(PROGRAMS))
    return {
        "train": [w.name for w in everything if w.width not in (*VAL_WIDTHS[w.kind], *TEST_WIDTHS[w.kind])],
        "val": [w.name for w in everything if w.width in VAL_WIDTHS[w.kind]],
        "test": [w.name for w in everything if w.width in TEST_WIDTHS[w.kind]],
    }


def _by_workload(held_out: Sequence[Workload]) -> Split:
    test = {w.name for w in held_out}
    by_run = _by_run()
    return {
        "train": [name for part in ("train", "test") for name in by_run[part] if name not in test],
        "val": [name for name in by_run["val"] if name not in test],
        "test": [w.name for w in held_out],
    }


PLANS: dict[str, Callable[[], Plan]] = {"cpu-gloo": cpu_gloo}
