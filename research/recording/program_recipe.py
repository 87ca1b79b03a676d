"""The recipe for programs on a processor: forty small models of public libraries, to hold whole programs out.

Runs are ordered by size, so that any prefix holds every program. The last runs are those of cpu-gloo, by which its
labels and these have one scale (`gnnperf.gnn.data.prepare`).
"""

from collections.abc import Mapping, Sequence

from research.recording.cpu_gloo import STEPS, cpu_gloo
from research.recording.gpu_recipe import by_program
from research.recording.network import LOOPBACK
from research.recording.plan import Plan, Split, split_by
from research.recording.run import RunSpec
from research.recording.workloads.small_model import SmallModel

REPEATS, MIN_GAP_S, MAX_DRIFT = 2, 300.0, 0.05
SHARED_PERIOD = 7  # of the runs of cpu-gloo that `run` trains on, one is recorded here, too

# (hidden, size, batch) of a model's runs, small ones first.
TEXTS, FEW_TEXTS = ((64, 32, 8), (128, 64, 8)), ((64, 32, 4), (128, 64, 4))
IMAGES, FEW_IMAGES = ((64, 32, 8), (64, 64, 8)), ((64, 32, 4), (64, 64, 4))
PATCHES, NODES = ((64, 64, 8), (128, 64, 8)), ((32, 32, 4), (128, 64, 4))
# Family -> model -> its runs.
PROGRAMS: Mapping[str, Mapping[str, Sequence[tuple[int, int, int]]]] = {
    "convolution": {
        "resnet": FEW_IMAGES, "mobilenet": IMAGES, "regnet": FEW_IMAGES, "ghostnet": IMAGES, "efficientnet": IMAGES,
        "convnext": ((40, 32, 8), (64, 64, 4)), "densenet": ((32, 32, 8), (64, 64, 4)),
        "video": ((16, 32, 4), (32, 32, 8)), "lraspp": ((64, 64, 4), (64, 96, 4)), "gan": ((32, 16, 16), (64, 16, 32)),
    },
    "vision": {
        "vit": PATCHES, "swin": ((32, 32, 8), (64, 32, 16)), "mixer": ((64, 64, 8), (128, 64, 16)),
        "resmlp": ((64, 64, 8), (128, 64, 16)), "mae": PATCHES, "segformer": ((32, 64, 4), (64, 64, 8)),
        "clip": ((64, 32, 8), (128, 64, 8)),
    },
    "encoder": {"bert": TEXTS, "deberta": FEW_TEXTS, "electra": TEXTS, "albert": TEXTS, "fnet": TEXTS},
    "decoder": {
        "gpt2": TEXTS, "llama": TEXTS, "mixtral": FEW_TEXTS, "xlnet": ((64, 32, 4), (128, 48, 4)),
        "mamba": ((64, 16, 4), (128, 32, 4)),
    },
    "sequence": {
        "t5": ((64, 32, 8), (128, 64, 4)), "bart": ((64, 32, 8), (128, 64, 4)),
        "seq2seq": ((64, 32, 16), (128, 48, 16)), "whisper": ((64, 16, 4), (128, 16, 4)),
        "wav2vec2": ((32, 80, 4), (64, 80, 4)), "spectrum": ((64, 1, 2), (128, 1, 2)),
        "patchtst": ((64, 96, 8), (128, 192, 8)),
    },
    "graph": {
        "gcn": NODES, "gat": ((32, 32, 2), (64, 64, 4)), "graph_sage": NODES, "gin": NODES,
        "edge_cnn": ((32, 32, 2), (64, 32, 2)),
    },
    "recommendation": {"deepfm": ((16, 16, 256), (32, 16, 1024))},
}  # fmt: skip
OPTIMIZER_OF = {
    "resnet": "sgd", "regnet": "sgd", "mobilenet": "rmsprop", "densenet": "sgd", "bart": "nadam", "gat": "adam_loop",
    "deepfm": "adagrad", "gan": "adam_loop", "mixer": "adamw_fused", "llama": "adamw_fused",
}  # fmt: skip
FAMILIES_HELD_OUT = {"graph": "test", "decoder": "test", "encoder": "val"}


def cpu_programs() -> Plan:
    """The plan: every program at its smaller size, then at its larger ones, on two ranks but for every third."""
    runs = [*_runs(0), *_runs(1)]
    first = cpu_gloo()
    shared = {name for part in ("train", "val") for name in first.splits["run"][part][::SHARED_PERIOD]}
    return Plan(
        name="cpu-programs",
        runs=(*runs, *(r for r in first.runs if r.name in shared and r.world_size <= 2 and r.link == LOOPBACK)),
        steps=STEPS,
        splits={"program": by_program(runs), "family": _by_family(runs)},
        axes={
            "program": "programs; relatives of those held out may be trained on",
            "family": f"families of programs; held out are {', '.join(FAMILIES_HELD_OUT)}",
        },
        repeats=REPEATS,
        min_gap_s=MIN_GAP_S,
        max_drift=MAX_DRIFT,
    )


def _runs(place: int) -> list[RunSpec]:
    models = [(model, sizes[place]) for family in PROGRAMS.values() for model, sizes in family.items()]
    return [
        RunSpec(
            SmallModel(model, *size, optimizer=OPTIMIZER_OF.get(model, "adamw")),
            world_size=1 if (turn + place) % 3 == 0 else 2,
        )
        for turn, (model, size) in enumerate(models)
    ]


def _by_family(runs: Sequence[RunSpec]) -> Split:
    family_of = {model: family for family, models in PROGRAMS.items() for model in models}

    def part_of(run: RunSpec) -> str:
        assert isinstance(run.workload, SmallModel)
        return FAMILIES_HELD_OUT.get(family_of[run.workload.model], "train")

    return split_by(runs, part_of)
