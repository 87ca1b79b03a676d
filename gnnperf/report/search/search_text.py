"""The result of a search for readers and for programs: what is best, why others lose, what is proven."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from gnnperf.analytic import rate_key_of
from gnnperf.generate import TransformerPlan, step_work
from gnnperf.hardware import ClusterSpec
from gnnperf.predict import Throughput
from gnnperf.shard import Option, SearchOutcome, settings_text

# What is best -> the weight of a plan's step: every candidate has the same tokens, so the fastest step has the most
# tokens per second, and cost goes with devices.
WEIGHT_OF: dict[str, Callable[[TransformerPlan], float]] = {
    "step": lambda _: 1.0,
    "tokens_per_s": lambda _: 1.0,
    "cost": lambda plan: float(plan.parallelism.world_size),
}
GIB = float(1 << 30)
WORTH_NAMING = 0.002  # of the best step: what less adds to another one's


@dataclass(frozen=True)
class SearchReport:
    """A search and what was requested."""

    outcome: SearchOutcome  # the result
    plan: TransformerPlan  # that was given
    cluster: ClusterSpec  # devices and links
    devices: tuple[int, ...]  # numbers of them that were tried
    capacity_bytes: float  # of a device, for the plan
    by: str  # what is best, a key of WEIGHT_OF
    usd_per_gpu_hour: float | None  # price of a device; None: unknown
    top: int  # plans to show

    def rates(self, one: Option) -> Throughput:
        """Of an option."""
        work, device = step_work(one.plan), self.cluster.device
        peak = device.flops_per_s[rate_key_of(device, "gemm", work.dtype)]
        return Throughput(one.step_us, one.plan.parallelism.world_size, work, peak_flops_per_s=peak,
                          usd_per_gpu_hour=self.usd_per_gpu_hour)  # fmt: skip


def milliseconds(us: float) -> str:
    """Whole ones from a second up."""
    return f"{us / 1e3:,.0f} ms" if us >= 1e6 else f"{us / 1e3:.4g} ms"


def text(search: SearchReport) -> str:
    """Everything for a reader."""
    outcome, devices = search.outcome, ", ".join(map(str, search.devices))
    head = (
        f"{search.plan.name} on {devices} x {search.cluster.device.name} (cluster {search.cluster.name}), global "
        f"batch {search.plan.schedule.global_batch:,} x {search.plan.model.sequence:,} tokens",
        f"{outcome.num_plans:,} candidates; {outcome.num_too_large:,} need more than "
        f"{search.capacity_bytes / GIB:.1f} GiB; {len(outcome.options)} judged by the predicted step",
    )
    return "\n".join((*head, *_table(search), *_reasons(search), *_comparison(search)))


def _table(search: SearchReport) -> Iterator[str]:
    """Options by step; * marks those that no other one beats in step, memory and cost at once."""
    front = {id(one) for one in search.outcome.front}
    priced = search.usd_per_gpu_hour is not None
    yield ""
    yield f"    step        memory     tokens/s/GPU   MFU    {'USD/M tokens' if priced else 'GPU-h/step'}   division"
    for one in search.outcome.options[: search.top]:
        rates = search.rates(one)
        cost = rates.usd_per_million_tokens if priced else rates.gpu_hours_per_step
        yield (f"{'*' if id(one) in front else ' '}   {milliseconds(one.step_us):10s}  {_memory(one):9s}  "
               f"{rounded(rates.tokens_per_s_per_gpu, ',.0f'):>12s}  {rounded(rates.mfu, '.1%'):>6s}  "
               f"{rounded(cost, '.4g'):>12s}   {settings_text(one.plan)}")  # fmt: skip
    yield "*   no other judged plan is better in step, memory and cost at once"


def _memory(one: Option) -> str:
    return f"{one.peak_bytes / GIB:.1f} GiB"


def rounded(value: float | None, form: str) -> str:
    """For a reader."""
    return "unknown" if value is None else format(value, form)


def _reasons(search: SearchReport) -> Iterator[str]:
    """What the best step is made of, and what others have more of."""
    best, *others = search.outcome.options[: search.top]
    yield ""
    yield f"the best step, {settings_text(best.plan)}:"
    for name, us in sorted(best.parts_us.items(), key=lambda item: -item[1]):
        if us > WORTH_NAMING * best.step_us:
            yield f"  {us / best.step_us:6.1%}  {name}"
    if others:
        yield "why the others lose:"
    for one in others:
        yield f"  {one.step_us / best.step_us - 1.0:+7.1%}  {settings_text(one.plan)}: {reason(best, one)}"


def reason(best: Option, one: Option) -> str:
    """The parts of a step that are longer than the best one's, the largest first."""
    more = {name: us - best.parts_us[name] for name, us in one.parts_us.items()}
    named = sorted((-us, name) for name, us in more.items() if us > WORTH_NAMING * best.step_us)
    return ", ".join(f"+{milliseconds(-us)} {name}" for us, name in named[:3]) or "equal within 0.2 %"


def _comparison(search: SearchReport) -> Iterator[str]:
    outcome, best = search.outcome, search.outcome.best
    yield ""
    for name, one in outcome.baselines.items():
        value = one.step_us * WEIGHT_OF[search.by](one.plan)
        large = " does not fit" if one.peak_bytes > search.capacity_bytes else ""
        yield (f"{name:28s} {milliseconds(one.step_us):>10s}  {value / best - 1.0:+7.1%} against the best   "
               f"{_memory(one)}{large}   {settings_text(one.plan)}")  # fmt: skip
    yield ""
    if outcome.gap == 0.0:
        yield "Proven: no other candidate that fits has a shorter predicted step; their lower bounds are no better."
    else:
        yield (f"Not proven: another candidate might be up to {outcome.gap:.1%} better by its lower bound; "
               "the search has judged as many plans as it may.")  # fmt: skip
    yield "This compares predicted steps; it proves nothing about measured ones."


def document(search: SearchReport) -> dict[str, object]:
    """Everything, for JSON."""
    outcome, front = search.outcome, {id(one) for one in search.outcome.front}
    return {
        "name": search.plan.name,
        "hardware": search.cluster.device.name,
        "cluster": search.cluster.name,
        "devices": list(search.devices),
        "by": search.by,
        "usd_per_gpu_hour": search.usd_per_gpu_hour,
        "capacity_bytes": search.capacity_bytes,
        "num_candidates": outcome.num_plans,
        "num_too_large": outcome.num_too_large,
        "num_judged": len(outcome.options),
        "proven": outcome.gap == 0.0,
        "gap": outcome.gap,
        "plans": [{**_one(search, one), "on_front": id(one) in front} for one in outcome.options],
        "baselines": {name: _one(search, one) for name, one in outcome.baselines.items()},
    }


def _one(search: SearchReport, one: Option) -> dict[str, object]:
    rates = search.rates(one)
    return {
        "origin": one.origin,
        "division": settings_text(one.plan),
        "step_us": one.step_us,
        "lower_bound_us": one.bound.step_us,
        "extended_from_fewer_micro_batches": one.judged.extended,
        "peak_bytes": one.peak_bytes,
        "tokens_per_s": rates.tokens_per_s,
        "tokens_per_s_per_gpu": rates.tokens_per_s_per_gpu,
        "mfu": rates.mfu,
        "gpu_hours_per_step": rates.gpu_hours_per_step,
        "usd_per_million_tokens": rates.usd_per_million_tokens,
        "parts_us": dict(one.parts_us),
        "parallelism": asdict(one.plan.parallelism),
        "sharding": asdict(one.plan.sharding),
        "schedule": asdict(one.plan.schedule),
    }
