"""The recipe for one CUDA GPU: calibration, training runs at real sizes, interventions; any prefix of it is of use.

Written for an H200 and several sessions of 10 minutes (`--minutes` ends one, `--resume` goes on). One GPU has no peers:
there are no NCCL transfers in this set, and no links. Every program runs once. Then come, in turns, known changes and
what is captured in CUDA graphs or compiled; then everything again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, zip_longest

from research.evaluation.pairs import Change
from research.recording.plan import Pair, Plan, Split, split_by
from research.recording.run import RunSpec, Sleep, Steps
from research.recording.workloads.cnn import Cnn, Layout
from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.library_model import LibraryModel
from research.recording.workloads.moe import Moe
from research.recording.workloads.rl import Rl
from research.recording.workloads.small_model import SmallModel
from research.recording.workloads.transformer import Transformer
from research.recording.workloads.workload import Place, Workload

PERIOD, PART_OF_TURN = 5, {4: "val", 2: "test"}  # of every five programs, which is for what
STEPS = Steps(warmup=6, unprofiled=16, profiled=3, execution_trace=True)
REPEATED_OP = {"transformer": "aten::linear", "cnn": "aten::conv2d", "dlrm": "aten::bmm", "moe": "aten::bmm"}
CALIBRATE_MINUTES = 1.0
MAX_DRIFT = 0.15  # the probe of an H200 after rest differs from the one after work by 12 % (probe.py)
TIMES = 9  # a repeated op runs
LARGER = 2  # times the batch

TRANSFORMER = tuple(
    Transformer(layers=layers, width=width, sequence=sequence, batch=batch, vocabulary=32_000, precision=precision)
    for layers, width, sequence, batch, precision in (
        (4, 1024, 1024, 8, "bfloat16"), (12, 768, 512, 16, "bfloat16"), (2, 4096, 2048, 2, "bfloat16"),
        (4, 1024, 1024, 4, "float32"),
    )
)  # fmt: skip
CNN = tuple(
    Cnn(blocks=blocks, channels=64, image=image, batch=batch, layout=Layout.BOTTLENECK, precision=precision)
    for blocks, image, batch, precision in ((3, 128, 64, "bfloat16"), (2, 224, 32, "float32"))
)
DLRM = tuple(
    Dlrm(tables=tables, rows=rows, dim=dim, batch=batch, pooling=pooling, skew=skew, bottom=(512, 256),
         top=(1024, 512, 256))
    for tables, rows, dim, batch, pooling, skew in (
        (8, 500_000, 64, 4096, 8, 4.0), (26, 100_000, 128, 8192, 4, 1.0), (4, 500_000, 128, 16384, 16, 4.0),
    )
)  # fmt: skip
OTHERS = (
    Moe(layers=4, width=1024, experts=8, sequence=512, batch=8, hidden=4096, precision="bfloat16"),
    Rl(hidden=256, num_envs=1024, horizon=16, vectorized=True),
)
VISION = (
    ("resnet50", 224, 64), ("vit", 224, 64), ("convnext", 224, 32), ("efficientnet_b0", 224, 64), ("swin", 224, 32),
    ("mobilenetv3", 224, 128), ("mixer", 224, 32), ("densenet121", 224, 32), ("regnety", 224, 64),
    ("deeplab", 256, 8), ("video_resnet", 112, 8), ("diffusion", 64, 32),
)  # fmt: skip
LANGUAGE = (
    ("gpt2", 1024, 8), ("llama", 1024, 4), ("bert", 512, 16), ("t5", 512, 16), ("lstm", 128, 64), ("mixtral", 512, 8),
    ("bart", 512, 8), ("deberta", 256, 16),
)  # fmt: skip
OTHER_INPUTS = (
    ("graph_sage", 256, 64), ("whisper", 128, 8), ("gat", 64, 16), ("clip", 224, 32), ("gcn", 128, 128),
    ("wav2vec2", 80_000, 8),
)  # fmt: skip
# Of `gpu_programs`: programs that no other GPU of ours has run.
NEW = (
    ("qwen3", 1024, 4), ("resnext50", 224, 32), ("qwen3_moe", 512, 8), ("segformer", 512, 8), ("lora", 1024, 4),
    ("gin", 256, 64), ("mae", 224, 32), ("conformer", 80_000, 8), ("vgg16", 224, 32), ("xlnet", 512, 8),
    ("poolformer", 224, 64), ("patchtst", 512, 256), ("mobilevit", 256, 64), ("spectrum", 1024, 8),
    ("fnet", 512, 16), ("coatnet", 224, 32),
)  # fmt: skip
FLOAT32 = ("convnext", "fnet", "gat", "gcn", "gin", "lstm")
OPTIMIZER_OF = {
    "gpt2": "adamw_fused",
    "llama": "adamw_fused",
    "vit": "adamw_fused",
    "efficientnet_b0": "rmsprop",
    "mobilenetv3": "rmsprop",
    "qwen3": "adamw_fused",
    "resnet50": "sgd",
    "vgg16": "sgd",
    "deeplab": "sgd",
}


def _library(programs: Sequence[tuple[str, int, int]]) -> tuple[LibraryModel, ...]:
    return tuple(
        LibraryModel(
            model, size, batch, "float32" if model in FLOAT32 else "bfloat16", OPTIMIZER_OF.get(model, "adamw")
        )
        for model, size, batch in programs
    )


PLACES = (Place.START, Place.BACKWARD, Place.OPTIMIZER)


@dataclass(frozen=True)
class Programs:
    """What the recipe runs."""

    eager: Sequence[Sequence[Workload]]  # in turns, those of one program in one group
    accelerated: Sequence[Workload]  # captured in CUDA graphs or compiled; late, since their preparation takes long
    enlarged: Sequence[Workload]  # programs that also run with a larger batch
    paired: Sequence[Workload]  # programs whose other interventions are recorded
    sleeps: Sequence[Sleep]  # what they are disturbed by, in turns


REAL = Programs(
    eager=(TRANSFORMER, _library(VISION), CNN, _library(LANGUAGE), DLRM, _library(OTHER_INPUTS), OTHERS),
    accelerated=(
        replace(TRANSFORMER[0], cuda_graph=True), replace(TRANSFORMER[0], compile=True),
        replace(CNN[0], cuda_graph=True), replace(_library(VISION)[1], compile=True),
        replace(_library(LANGUAGE)[0], compile=True),
    ),
    enlarged=(TRANSFORMER[0], *_library(VISION)[:4], CNN[0], *_library(LANGUAGE)[:4], DLRM[0],
              *_library(OTHER_INPUTS)[:2], OTHERS[0]),
    paired=(TRANSFORMER[0], CNN[0], DLRM[0]),
    sleeps=tuple(Sleep(0, place, sleep_us=20_000.0) for place in PLACES),
)  # fmt: skip


def gpu(programs: Programs = REAL) -> Plan:
    """The plan: every eager program, then in turns known changes and what is captured or compiled."""
    eager = [_isolated(w) for w in chain.from_iterable(zip_longest(*programs.eager)) if w is not None]
    accelerated = [_isolated(workload) for workload in programs.accelerated]
    larger, disturbed = tuple(_larger(programs)), tuple(_pairs(programs))
    in_turns = zip_longest([pair.b for pair in larger], [pair.b for pair in disturbed], accelerated)
    known = [*eager, *(run for run in chain.from_iterable(in_turns) if run is not None)]
    return Plan(
        name="gpu", runs=tuple(dict.fromkeys(known)), steps=STEPS, pairs=(*larger, *disturbed),
        max_drift=MAX_DRIFT, max_attempts=2, calibrate_minutes=CALIBRATE_MINUTES,
        splits={"program": by_program([*eager, *accelerated])},
        axes={"program": "programs"},
    )  # fmt: skip


# Programs of `gpu` whose tables are large: a step has thousands of short kernels.
LONG_STEPS = ("bart", "deberta", "deeplab", "densenet121", "efficientnet_b0", "mobilenetv3", "regnety", "swin", "t5",
              "wav2vec2", "whisper")  # fmt: skip


def gpu_programs(programs: Programs = REAL, new: Sequence[tuple[str, int, int]] = NEW) -> Plan:
    """The plan for a second GPU: in turns, programs that are new and those of `gpu` again.

    New programs test predictions of unseen programs, the others the transfer between GPUs.
    """
    first = gpu(programs)
    eager = [_isolated(w) for w in chain.from_iterable(zip_longest(*programs.eager)) if w is not None]
    again = [run for run in eager if _program(run.workload) not in LONG_STEPS]
    turns = chain.from_iterable(zip_longest(map(_isolated, _library(new)), again))
    runs = [*(run for run in turns if run is not None), *map(_isolated, programs.accelerated)]
    part_of = {name: part for part, names in first.splits["program"].items() for name in names}
    split = split_by(runs, lambda run: part_of.get(run.name, "test"))
    return replace(first, name="gpu-programs", runs=tuple(runs), steps=replace(STEPS, profiled=2), pairs=(),
                   splits={"program": split}, axes={"program": "programs; those that `gpu` has are in its parts"},
                   repeats=1)  # fmt: skip


def _isolated(workload: Workload) -> RunSpec:
    return RunSpec(workload, world_size=1)


def _larger(programs: Programs) -> Iterable[Pair]:
    for workload in programs.enlarged:
        a = _isolated(workload)
        to = LARGER * workload.batch
        yield Pair(Change.SIZE, a, replace(a, workload=replace(workload, batch=to)),  # type: ignore[type-var]
                   {"parameter": "batch", "to": to})  # fmt: skip


def _pairs(programs: Programs) -> Iterable[Pair]:
    """Something that only waits is put into the step; an op is repeated."""
    for workload, sleep in zip(programs.paired, cycle(programs.sleeps), strict=False):
        a = _isolated(workload)
        yield Pair(Change.SLEEP, a, replace(a, sleep=sleep), sleep.edit)
        repeating = _isolated(replace(workload, repeats=TIMES))  # type: ignore[type-var]
        yield Pair(Change.REPEAT, a, repeating, {"op": REPEATED_OP[workload.kind], "times": TIMES, "rank": None})


def by_program(runs: Sequence[RunSpec]) -> Split:
    """Of every five programs, in the order of their first runs, one validates and one tests."""
    programs = list(dict.fromkeys(_program(run.workload) for run in runs))
    part_of = {name: PART_OF_TURN.get(turn % PERIOD, "train") for turn, name in enumerate(programs)}
    return split_by(runs, lambda run: part_of[_program(run.workload)])


def _program(workload: Workload) -> str:
    return workload.model if isinstance(workload, LibraryModel | SmallModel) else workload.kind
