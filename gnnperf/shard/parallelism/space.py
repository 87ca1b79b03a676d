"""The candidates: every way to divide a plan's model over so many devices that plans can say.

The model, its block, the global batch and how gradients are summed stay as the plan has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from gnnperf.core import InputError
from gnnperf.generate import ContextExchange, Parallelism, Pipeline, Recompute, Sharded, Sharding, TransformerPlan

MOST_MICRO_BATCH = 32  # samples
MOST_CHUNKS = 8
LEAST_POSITIONS = 8192  # of a sample on a context rank
SHARDINGS = (
    Sharding(Sharded.NOTHING),
    Sharding(Sharded.OPTIMIZER),
    Sharding(Sharded.GRADIENTS),
    Sharding(Sharded.PARAMETERS),
    Sharding(Sharded.PARAMETERS, reshard_after_forward=False),
)
Order = tuple[Pipeline, int, bool]
Retained = tuple[Recompute, int | None]  # what is computed again, and of how many layers of a chunk; None: of all

Contexts = Sequence[int] | None  # numbers of context ranks; None: those that leave each one LEAST_POSITIONS


def candidates(base: TransformerPlan, devices: Sequence[int], contexts: Contexts = None) -> list[TransformerPlan]:
    """Every plan that is valid, in a fixed order.

    Raises:
        InputError: not one is.
    """
    result = []
    for ways in (ways for count in devices for ways in _ways(base, count, contexts)):
        for micro_batch in _micro_batches(base.schedule.global_batch, ways.data):
            settings = product(_shardings(ways), _orders(base, ways), _retained(base))
            plans = (_candidate(base, ways, micro_batch, *each) for each in settings)
            result += [plan for plan in plans if plan is not None]
    if not result:
        given = "" if contexts is None else f" with context {', '.join(map(str, contexts))}"
        raise InputError(
            f"no way to divide the model over {', '.join(map(str, devices))} devices{given}", where=f"plan {base.name}",
            allowed=f"numbers that heads ({base.model.heads}), layers ({base.model.layers}) and the global batch "
            f"({base.schedule.global_batch}) can be divided by"
            + (", contexts that divide the devices and a plan with block.attention flash" if given else ""),
        )  # fmt: skip
    return result


def _ways(base: TransformerPlan, devices: int, contexts: Contexts) -> Iterator[Parallelism]:
    experts = 1 if base.experts is None else base.experts.count
    for tensor in divisors(devices):
        for pipeline in divisors(devices // tensor):
            data = devices // tensor // pipeline
            for expert in divisors(data):
                divided = base.model.heads % tensor == experts % expert == 0
                for sequence in (False, True) if divided and tensor > 1 else (False,) if divided else ():
                    for context, exchange in _contexts(base, data, contexts):
                        yield Parallelism(tensor, pipeline, data // context, expert, sequence, context, exchange)


def _contexts(base: TransformerPlan, data: int, contexts: Contexts) -> Iterator[tuple[int, ContextExchange]]:
    """Context ranks among those of equal parameters, and what they exchange."""
    for context in divisors(data):
        enough = context in (1, base.parallelism.context) or base.model.sequence // context >= LEAST_POSITIONS
        if enough if contexts is None else context in contexts:
            yield from ((context, exchange) for exchange in list(ContextExchange)[: None if context > 1 else 1])


def divisors(number: int) -> tuple[int, ...]:
    """Ascending."""
    return tuple(i for i in range(1, number + 1) if number % i == 0)


def _micro_batches(global_batch: int, data: int) -> Iterator[int]:
    """Powers of two of a replica's samples."""
    size = 1
    while global_batch % data == 0 and size <= MOST_MICRO_BATCH and global_batch // data % size == 0:
        yield size
        size *= 2


def _shardings(ways: Parallelism) -> Iterator[Sharding]:
    for sharding in SHARDINGS:
        fits = ways.data_context > 1 and (ways.pipeline == 1 or not sharding.reduces_every_pass)
        if fits or sharding == Sharding():
            yield sharding


def _orders(base: TransformerPlan, ways: Parallelism) -> Iterator[Order]:
    """Orders of passes, chunks of a stage, and whether the model's ends take the place of layers."""
    if ways.pipeline == 1:
        yield Pipeline.ONE_F_ONE_B, 1, False
        return
    flushing = [order for order in Pipeline if order.flushes]  # the others train with older weights
    for order, ends in product(flushing, (False, True)):
        placed = base.model.layers + (2 if ends else 0)
        if placed % ways.pipeline == 0:
            chunks = divisors(placed // ways.pipeline)
            yield from ((order, n, ends) for n in chunks if order.allows(n) and n <= MOST_CHUNKS)


def _retained(base: TransformerPlan) -> Iterator[Retained]:
    """Recomputation; selective is that of scores, which flash attention does not keep."""
    yield Recompute.NONE, None
    if base.block.attention == "unfused":
        yield Recompute.SELECTIVE, None
    yield Recompute.FULL, 2
    yield Recompute.FULL, None


def _candidate(
    base: TransformerPlan, ways: Parallelism, micro_batch: int, sharding: Sharding, order: Order, retained: Retained
) -> TransformerPlan | None:  # fmt: skip
    """None: its settings do not go together."""
    recompute, share = retained
    pipeline, chunks, ends = order
    per_chunk = base.model.layers // ways.pipeline // chunks
    if share is not None and (per_chunk % share or ends):
        return None
    try:
        schedule = replace(
            base.schedule, micro_batch=micro_batch, pipeline=pipeline, chunks=chunks, recompute=recompute,
            recomputed_layers=None if share is None else per_chunk // share, ends_as_layers=ends,
        )  # fmt: skip
        return replace(base, parallelism=ways, sharding=sharding, schedule=schedule)
    except InputError:
        return None


def settings_text(plan: TransformerPlan) -> str:
    """What a candidate differs in from others, in one line."""
    ways, schedule, sharding = plan.parallelism, plan.schedule, plan.sharding
    chunks, ends = f" x{schedule.chunks}" if schedule.chunks > 1 else "", " ends" if schedule.ends_as_layers else ""
    names = {Sharded.OPTIMIZER: "zero1", Sharded.GRADIENTS: "zero2", Sharded.PARAMETERS: "fsdp"}
    retained = sharding.state is Sharded.PARAMETERS and not sharding.reshard_after_forward
    layers = schedule.recomputed_layers
    again = f"{layers}/{plan.layers_per_chunk} layers" if layers is not None else str(schedule.recompute)
    parts = {
        f"tp {ways.tensor} pp {ways.pipeline} dp {ways.data}": True,
        f"cp {ways.context} {ways.context_exchange}": ways.context > 1,
        f"ep {ways.expert}": ways.expert > 1,
        f"mb {schedule.micro_batch}": True,
        "sp": ways.sequence,
        names.get(sharding.state, "") + ("-no-reshard" if retained else ""): sharding.shards_update,
        f"{schedule.pipeline}{chunks}{ends}": ways.pipeline > 1,
        f"recompute {again}": True,
    }
    return " ".join(text for text, there in parts.items() if there)
