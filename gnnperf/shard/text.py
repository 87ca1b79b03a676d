"""The answer as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnperf.generate import placement_as_written
from gnnperf.shard.judge import DENSE, EXCHANGE, HOST, LOOKUPS, REDUCE, Judged
from gnnperf.shard.shard_answer import Answer, RankLoad, gain, rank_loads, splits, unevenness

GIB, MIB = float(1 << 30), float(1 << 20)
MOST_RANKS, MOST_TABLES = 16, 40  # in a list
ADVICE = {
    HOST: "the host issues kernels more slowly than the devices run them; no placement changes that",
    DENSE: "perceptrons, which every placement has",
    EXCHANGE: "vectors and indices on their way between devices",
    LOOKUPS: "looking up and updating rows",
    REDUCE: "sums of gradients of what is replicated",
}


def text(result: Answer) -> str:
    """Everything for a reader."""
    return "\n".join(
        (
            *_head(result),
            *_ranking(result),
            *_comparison(result),
            *_limits(result.judged[0]),
            *_ranks(result),
            *_placement(result),
        )
    )


def _head(result: Answer) -> Iterator[str]:
    problem, plan = result.problem, result.problem.plan
    where = f"{problem.ranks} x {problem.cluster.device.name} (cluster {problem.cluster.name})"
    yield f"{plan.name}: {len(problem.tables)} tables, batch {plan.batch:,}, on {where}"
    reserved = f"{problem.reserve_share:.0%} of it in reserve"
    yield f"memory for tables per device: {problem.capacity_bytes / GIB:.1f} GiB ({reserved})"
    yield f"{result.requested} placements judged by the predicted step"


def _ranking(result: Answer) -> Iterator[str]:
    yield ""
    yield " #  step        busiest: work  vectors     memory    work/mean   tables whole  row  column  replicated"
    for place, ranked in enumerate(result.ranked, start=1):
        loads, held = rank_loads(result, ranked.placement), splits(ranked.placement)
        work, sent = [load.work_us for load in loads], max(load.vector_bytes for load in loads)
        memory = max(load.memory_bytes for load in loads)
        busiest = (
            f"{milliseconds(max(work)):>12s}  {sent / MIB:7.1f} MiB  {memory / GIB:5.1f} GiB  {unevenness(work):9.2f}"
        )
        by_split = f"{held['table']:13d} {held['row']:4d} {held['column']:7d} {held['replicated']:11d}"
        yield f"{place:2d}  {milliseconds(ranked.step_us):10s}  {busiest}   {by_split}   {ranked.origin}"


def _comparison(result: Answer) -> Iterator[str]:
    best = result.ranked[0].step_us
    yield ""
    for name, step_us in result.compared_us.items():
        yield f"{name:26s} {milliseconds(step_us):>10s}   {step_us / best - 1.0:+.1%} against the best"
    yield f"the best saves {gain(result):.1%} of the step of greedy by size"


def _limits(given: Judged) -> Iterator[str]:
    yield ""
    yield f"what the best step ({milliseconds(given.step_us)}) is made of, along its critical path:"
    known = sorted(given.critical_us.items(), key=lambda item: -item[1])
    rest = given.step_us - sum(given.critical_us.values())
    for name, us in known:
        yield f"  {us / given.step_us:6.1%}  {name}: {ADVICE[name]}"
    yield f"  {rest / given.step_us:6.1%}  launches and gaps"


def _ranks(result: Answer) -> Iterator[str]:
    yield ""
    yield "rank  tables  lookups       work        vectors     memory"
    for rank, load in _some(rank_loads(result, result.ranked[0].placement)):
        yield (f"{rank:4d}  {load.tables:6d}  {load.lookups:12,.0f}  {milliseconds(load.work_us):>10s}  "
               f"{load.vector_bytes / MIB:6.1f} MiB  {load.memory_bytes / GIB:6.1f} GiB")  # fmt: skip
    more = result.problem.ranks - MOST_RANKS
    if more > 0:
        yield f"      and {more} more with less work; --json has all"


def _some(loads: Sequence[RankLoad]) -> list[tuple[int, RankLoad]]:
    """The busiest ranks, in their order."""
    busiest = sorted(enumerate(loads), key=lambda item: -item[1].work_us)[:MOST_RANKS]
    return sorted(busiest, key=lambda item: item[0])


def _placement(result: Answer) -> Iterator[str]:
    written = placement_as_written(result.problem.tables, result.ranked[0].placement, result.problem.ranks)
    yield ""
    yield "placement:"
    yield from (f"  {name}: {_plain(place)}" for name, place in list(written.items())[:MOST_TABLES])
    if len(written) > MOST_TABLES:
        yield f"  # and {len(written) - MOST_TABLES} more; --out FILE.yaml writes the plan, --json prints all"


def _plain(place: object) -> str:
    if isinstance(place, dict):
        return f"{{split: {place['split']}, ranks: {place['ranks']}}}"
    return str(place)


def milliseconds(us: float) -> str:
    """Four digits."""
    return f"{us / 1e3:.4g} ms" if us >= 1e3 else f"{us:.4g} us"
