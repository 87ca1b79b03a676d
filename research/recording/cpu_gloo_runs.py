"""Runs of the embedded data set: programs x sizes x batches x parallelism x links, in blocks that tell what varies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from research.evaluation.pairs import Change
from research.recording.network import Link
from research.recording.plan import Pair
from research.recording.run import RunSpec, Sleep
from research.recording.workloads.cnn import Cnn
from research.recording.workloads.dlrm import Dlrm, Sharding
from research.recording.workloads.moe import Moe
from research.recording.workloads.random_graph import RandomGraph
from research.recording.workloads.rl import Rl
from research.recording.workloads.transformer import Order, Parallel, Transformer
from research.recording.workloads.workload import Place, Workload

SLOW, MEDIUM, FAST = Link(2, 0.25), Link(2, 1.0), Link(2, 5.0)  # Gbit/s between two hosts
RATES = (SLOW, MEDIUM, FAST)

# Ordered by width, then by work: the split by run takes every so many-th.
DLRM = tuple(
    Dlrm(tables=tables, rows=rows, dim=dim, batch=batch)
    for tables, rows, dim, batch in ((4, 10_000, 16, 256), (6, 10_000, 16, 512), (6, 100_000, 16, 256),
                                     (4, 100_000, 16, 1024), (8, 50_000, 16, 512), (4, 400_000, 16, 2048),
                                     (6, 100_000, 32, 256), (4, 100_000, 32, 512), (4, 400_000, 32, 1024),
                                     (6, 100_000, 32, 1024), (8, 100_000, 32, 512), (6, 200_000, 32, 2048),
                                     (4, 100_000, 48, 512), (6, 100_000, 48, 1024), (6, 200_000, 64, 512),
                                     (4, 100_000, 64, 2048))
)  # fmt: skip
DLRM_ACCESS = tuple(
    Dlrm(tables=4, rows=rows, dim=32, batch=512, pooling=pooling, skew=skew)
    for rows, pooling, skew in ((400_000, 4, 1.0), (400_000, 16, 1.0), (400_000, 16, 4.0), (100_000, 16, 2.0),
                                (10_000, 8, 1.0), (1_000_000, 8, 1.0))
)  # fmt: skip
DLRM_SHARDED = tuple(
    Dlrm(tables=4, rows=rows, dim=dim, batch=batch, sharding=sharding)
    for sharding in (Sharding.ROW, Sharding.COLUMN)
    for rows, dim, batch in ((100_000, 16, 256), (100_000, 16, 1024), (100_000, 32, 512), (400_000, 32, 1024),
                             (100_000, 48, 512), (200_000, 64, 512))
)  # fmt: skip
DLRM_OVERLAPPED = tuple(
    Dlrm(tables=4, rows=100_000, dim=dim, batch=batch, bottom=(512, 256), overlap=overlap)
    for dim, batch in ((16, 1024), (32, 512), (32, 1024), (64, 512))
    for overlap in (True, False)
)
DLRM_TRAINED = (
    Dlrm(tables=4, rows=100_000, dim=32, batch=512, precision="bfloat16"),
    Dlrm(tables=6, rows=100_000, dim=32, batch=1024, precision="bfloat16"),
    Dlrm(tables=4, rows=100_000, dim=48, batch=512, precision="bfloat16"),
    Dlrm(tables=4, rows=100_000, dim=32, batch=256, accumulation=2),
    Dlrm(tables=4, rows=100_000, dim=16, batch=512, accumulation=2),
)
TRANSFORMER = (
    Transformer(layers=2, width=64, sequence=64, batch=4),
    Transformer(layers=3, width=64, sequence=64, batch=8, causal=False),
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
TRANSFORMER_PARALLEL = tuple(
    Transformer(layers=2, width=width, sequence=64, batch=batch, parallel=parallel)
    for parallel in (Parallel.FSDP, Parallel.TP)
    for width, batch in ((128, 4), (128, 8), (128, 16), (256, 2), (256, 4), (256, 8), (384, 4))
)
TRANSFORMER_PIPELINE = tuple(
    Transformer(layers=2, width=width, sequence=64, batch=batch, accumulation=4, parallel=Parallel.PP, order=order)
    for width, batch, order in ((64, 2, Order.GPIPE), (64, 4, Order.ONE_F_ONE_B), (128, 1, Order.GPIPE),
                                (128, 2, Order.GPIPE), (128, 4, Order.GPIPE), (128, 2, Order.ONE_F_ONE_B),
                                (192, 2, Order.ONE_F_ONE_B), (256, 1, Order.GPIPE), (256, 2, Order.ONE_F_ONE_B))
)  # fmt: skip
TRANSFORMER_TRAINED = (
    *(Transformer(layers=1, width=width, sequence=64, batch=8, precision="bfloat16") for width in (128, 192, 256, 320)),
    *(Transformer(layers=2, width=width, sequence=64, batch=8, checkpointing=True) for width in (64, 128, 192)),
    *(Transformer(layers=1, width=width, sequence=64, batch=4, accumulation=2) for width in (64, 128, 256)),
)
TRANSFORMER_OVERLAPPED = tuple(
    Transformer(layers=2, width=width, sequence=64, batch=batch, bucket_mb=bucket_mb, blocking=blocking)
    for width, batch, bucket_mb in ((128, 4, 0.5), (192, 4, 1.0), (256, 4, 1.0), (256, 8, 2.0))
    for blocking in (False, True)
)
CNN = tuple(
    Cnn(blocks=blocks, channels=channels, image=image, batch=batch)
    for blocks, channels, image, batch in ((1, 8, 32, 16), (2, 8, 24, 16), (1, 8, 32, 48), (1, 16, 24, 16),
                                           (1, 16, 32, 16), (2, 16, 24, 16), (1, 16, 32, 32), (1, 24, 24, 16),
                                           (1, 24, 32, 16), (1, 32, 24, 16), (1, 48, 24, 8), (1, 48, 24, 16))
)  # fmt: skip
CNN_TRAINED = (
    *(Cnn(blocks=1, channels=channels, image=24, batch=16, precision="bfloat16") for channels in (16, 24, 32)),
    *(Cnn(blocks=1, channels=channels, image=24, batch=8, accumulation=2) for channels in (8, 16, 24)),
)
CNN_OVERLAPPED = tuple(
    Cnn(blocks=1, channels=channels, image=24, batch=8, bucket_mb=0.5, blocking=blocking)
    for channels in (32, 48)
    for blocking in (False, True)
)
MOE = (
    Moe(layers=1, width=64, experts=4, batch=8),
    Moe(layers=2, width=64, experts=4, batch=4),
    Moe(layers=1, width=64, experts=8, batch=16, top=2),
    Moe(layers=1, width=64, experts=8, batch=8, padded=False),
    Moe(layers=1, width=128, experts=4, batch=8),
    Moe(layers=1, width=128, experts=8, batch=8, top=2),
    Moe(layers=2, width=128, experts=4, batch=4, padded=False),
    Moe(layers=1, width=192, experts=4, batch=8),
    Moe(layers=1, width=192, experts=4, batch=4, padded=False),
    Moe(layers=1, width=256, experts=4, batch=4),
)
RL = (
    Rl(hidden=32, num_envs=256, horizon=2),
    Rl(hidden=32, num_envs=512, horizon=2),
    Rl(hidden=64, num_envs=256, horizon=4),
    Rl(hidden=64, num_envs=512, horizon=4),
    Rl(hidden=128, num_envs=256, horizon=4),
    Rl(hidden=128, num_envs=1024, horizon=2),
    Rl(hidden=64, num_envs=512, horizon=2, vectorized=True),
    Rl(hidden=128, num_envs=1024, horizon=2, vectorized=True),
)
SCALES = (64_000, 128_000, 256_000)
RANDOM = tuple(RandomGraph(seed=seed, scale=SCALES[seed % len(SCALES)]) for seed in range(24))

PAIRED: tuple[Workload, ...] = (
    Dlrm(tables=4, rows=100_000, dim=32, batch=1024), Dlrm(tables=4, rows=100_000, dim=64, batch=1024),
    Transformer(layers=1, width=128, sequence=64, batch=8), Transformer(layers=2, width=256, sequence=64, batch=4),
    Transformer(layers=2, width=192, sequence=64, batch=8, causal=False),
    Cnn(blocks=1, channels=16, image=24, batch=16), Cnn(blocks=1, channels=32, image=24, batch=16),
    Moe(layers=1, width=128, experts=4, batch=8),
)  # fmt: skip


def plain_runs() -> tuple[RunSpec, ...]:
    """Programs take turns, so that a slow drift of the machine does not become a property of one of them."""
    blocks: list[Iterable[RunSpec]] = [
        _on(DLRM), _on(TRANSFORMER), _on(CNN), _on(DLRM_ACCESS), _on(DLRM_SHARDED), _on(DLRM_OVERLAPPED),
        _on(DLRM_TRAINED), _on(TRANSFORMER_PARALLEL), _on(TRANSFORMER_PIPELINE),
        _on(TRANSFORMER_TRAINED), _on(CNN_TRAINED), _on(MOE), _on(RL),
        _on(RANDOM), _on(PAIRED), _on(TRANSFORMER_OVERLAPPED[::2]), _over_links(), _isolated(),
        _four_ranks(), _overlapped_over_a_link(),
    ]  # fmt: skip
    turns = chain.from_iterable(zip_longest(*blocks))
    return tuple(dict.fromkeys(spec for spec in turns if spec is not None))


def _on(workloads: Sequence[Workload]) -> list[RunSpec]:
    return [RunSpec(workload) for workload in workloads]


def _over_links() -> list[RunSpec]:
    """The same programs over links of every rate."""
    programs: tuple[Workload, ...] = (
        *PAIRED,
        Dlrm(tables=4, rows=100_000, dim=32, batch=512, sharding=Sharding.ROW),
        Dlrm(tables=4, rows=100_000, dim=32, batch=512, sharding=Sharding.COLUMN),
        Transformer(layers=2, width=128, sequence=64, batch=4, parallel=Parallel.FSDP),
        Transformer(layers=2, width=128, sequence=64, batch=4, parallel=Parallel.TP),
        TRANSFORMER_PIPELINE[3],
        RL[3],
    )
    return [RunSpec(program, link=link) for program in programs for link in RATES]


def _overlapped_over_a_link() -> list[RunSpec]:
    """Where the link takes time there is something to overlap."""
    programs: tuple[Workload, ...] = (*DLRM_OVERLAPPED, *TRANSFORMER_OVERLAPPED, *CNN_OVERLAPPED)
    return [RunSpec(program, link=MEDIUM) for program in programs]


def _isolated() -> list[RunSpec]:
    """One rank: nothing to talk to."""
    programs: tuple[Workload, ...] = (
        DLRM[1], DLRM[7], DLRM[9], DLRM[13], TRANSFORMER[0], TRANSFORMER[3], TRANSFORMER[8], TRANSFORMER[10],
        CNN[0], CNN[3], CNN[8], CNN[10], RL[1], RL[4], RANDOM[0], RANDOM[1],
    )  # fmt: skip
    return [RunSpec(program, world_size=1) for program in programs]


def _four_ranks() -> list[RunSpec]:
    """Two ranks per core: only where the link, or the one rank that has work, decides how long a step is."""
    pipelines = [
        Transformer(layers=4, width=width, sequence=64, batch=2, accumulation=2, parallel=Parallel.PP)
        for width in (64, 128, 192)
    ]
    slow: tuple[Workload, ...] = (
        Dlrm(tables=4, rows=100_000, dim=32, batch=512),
        Dlrm(tables=4, rows=100_000, dim=64, batch=512),
        Transformer(layers=1, width=128, sequence=64, batch=2),
        Transformer(layers=1, width=256, sequence=64, batch=1),
        Cnn(blocks=1, channels=32, image=24, batch=2),
    )
    return [
        *(RunSpec(program, world_size=4, link=link) for program in pipelines for link in (MEDIUM, FAST)),
        *(RunSpec(program, world_size=4, link=SLOW) for program in slow),
    ]


# Interventions of the embedded data set: pairs of runs that differ by one known change.

REPEATED_OP = {"dlrm": "aten::bmm", "transformer": "aten::linear", "cnn": "aten::conv2d", "moe": "aten::bmm"}
SLEEPS = (
    Sleep(0, Place.START, 4000.0), Sleep(1, Place.BACKWARD, 6000.0), Sleep(0, Place.OPTIMIZER, 10000.0),
    Sleep(1, Place.START, 16000.0), Sleep(0, Place.BACKWARD, 24000.0), Sleep(1, Place.OPTIMIZER, 5000.0),
    Sleep(1, Place.START, 8000.0), Sleep(0, Place.START, 12000.0), Sleep(0, Place.BACKWARD, 5000.0),
    Sleep(1, Place.BACKWARD, 12000.0), Sleep(1, Place.OPTIMIZER, 20000.0), Sleep(0, Place.OPTIMIZER, 7000.0),
)  # fmt: skip
# (which of PAIRED, times): enough to be seen, and few enough to leave the step a step.
REPEATS = ((0, 9), (0, 17), (1, 17), (2, 5), (3, 4), (3, 7), (4, 5), (5, 3), (6, 4), (7, 5))
LARGER_BATCH: tuple[tuple[Workload, int], ...] = (
    (Dlrm(tables=4, rows=100_000, dim=32, batch=512), 1024),
    (Dlrm(tables=4, rows=100_000, dim=64, batch=1024), 2048),
    (Dlrm(tables=6, rows=100_000, dim=32, batch=256), 1024),
    (Dlrm(tables=4, rows=100_000, dim=16, batch=256, sharding=Sharding.ROW), 1024),
    (Dlrm(tables=4, rows=100_000, dim=16, batch=256, sharding=Sharding.COLUMN), 1024),
    (Transformer(layers=2, width=128, sequence=64, batch=4, parallel=Parallel.FSDP), 16),
    (Transformer(layers=2, width=128, sequence=64, batch=4, parallel=Parallel.TP), 16),
    (Transformer(layers=2, width=256, sequence=64, batch=4, parallel=Parallel.TP), 8),
    (TRANSFORMER_PIPELINE[2], 4),
    (TRANSFORMER_PIPELINE[3], 4),
    (Cnn(blocks=1, channels=8, image=32, batch=16), 48),
    (Cnn(blocks=1, channels=16, image=32, batch=16), 32),
    (Cnn(blocks=1, channels=48, image=24, batch=8), 16),
)
LARGER_TABLE = ((Dlrm(tables=4, rows=100_000, dim=32, batch=1024), 400_000),)


def pairs() -> tuple[Pair, ...]:
    return (*_sleeps(), *_links(), *_repeats(), *_sizes(), *_blocking())


def _sleeps() -> list[Pair]:
    runs = [(RunSpec(PAIRED[number % len(PAIRED)]), sleep) for number, sleep in enumerate(SLEEPS)]
    return [Pair(Change.SLEEP, a, replace(a, sleep=sleep), sleep.edit) for a, sleep in runs]


def _links() -> list[Pair]:
    return [
        Pair(Change.LINK, RunSpec(program, link=a), RunSpec(program, link=b), {"rate_gbit_per_s": b.rate_gbit_per_s})
        for program in PAIRED
        for a, b in ((FAST, MEDIUM), (MEDIUM, SLOW))
    ]


def _repeats() -> list[Pair]:
    """On all ranks, then on one rank, for which the other waits."""
    runs = [(number % 2, PAIRED[program], times) for number, (program, times) in enumerate(REPEATS)]
    return [*(_repeat(Change.REPEAT, program, times, None) for _, program, times in runs),
            *(_repeat(Change.SLOW_RANK, program, 2 * times, rank) for rank, program, times in runs)]  # fmt: skip


def _repeat(change: Change, program: Workload, times: int, rank: int | None) -> Pair:
    repeating = replace(program, repeats=times, repeating_rank=rank)  # type: ignore[type-var]
    edit = {"op": REPEATED_OP[program.kind], "times": times, "rank": rank}
    return Pair(change, RunSpec(program), RunSpec(repeating), edit)


def _sizes() -> list[Pair]:
    result, tables = [], [(table, "rows", rows) for table, rows in LARGER_TABLE]
    for program, name, to in [*((program, "batch", batch) for program, batch in LARGER_BATCH), *tables]:
        larger = replace(program, **{name: to})  # type: ignore[type-var]
        result.append(Pair(Change.SIZE, RunSpec(program), RunSpec(larger), {"parameter": name, "to": to}))
    return result


def _blocking() -> list[Pair]:
    """B waits for its collectives where they are issued."""
    over_a_link: tuple[Workload, ...] = (*DLRM_OVERLAPPED, *TRANSFORMER_OVERLAPPED, *CNN_OVERLAPPED)
    on_loopback = DLRM_OVERLAPPED
    runs = [RunSpec(w, link=MEDIUM) for w in over_a_link] + [RunSpec(w) for w in on_loopback]
    return [Pair(Change.BLOCKING, a, b, {"blocking": True}) for a, b in zip(runs[::2], runs[1::2], strict=True)]


def only_paired(plain: tuple[RunSpec, ...], all_pairs: tuple[Pair, ...]) -> tuple[RunSpec, ...]:
    known = set(plain)
    return tuple(dict.fromkeys(run for pair in all_pairs for run in (pair.a, pair.b) if run not in known))
