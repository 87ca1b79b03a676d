"""Numbers and sentences as people read them, the same in the console and in the HTML report."""

import json
import math
from collections.abc import Sequence
from typing import Any

from gnnperf.core import Source, StepTimeKind, counted
from gnnperf.memory import OUTSIDE
from gnnperf.predict import TRANSFER, RankMemory, StepPrediction, WithoutProfiler
from gnnperf.report.summary import num_nodes_by_reason, num_nodes_by_source
from gnnperf.whatif import Finding

DOUBTED, NUM_DOUBTS = (Source.GNN_CALIBRATED, Source.ANALYTIC, Source.UNCOVERED), 3
UNKNOWN = "unknown"
MOST_RANKS = 8  # whose memory is a line of the console; prediction.json and report.html have all
MOST_WARNINGS, MOST_STEPS = 3, 12  # shown above the result; named
ROUNDING_US = 1e-6  # a picosecond: no duration is shorter
UNITS = ((1e3, 1.0, "us"), (1e6, 1e3, "ms"), (math.inf, 1e6, "s"))  # below this many us: divide by, unit
MEANING = {
    StepTimeKind.PERIOD: "from the completion of one step to the completion of the next, in steady state",
    StepTimeKind.MAKESPAN: "from the first rank's start of the step to the last completion",
    StepTimeKind.WINDOW: "first start to last end; the trace has no step marks",
}


def time_text(time_us: float | None) -> str:
    """A duration with four digits and its unit; unknown stays unknown, what rounding left of a difference is 0."""
    if time_us is None or not math.isfinite(time_us):
        return UNKNOWN
    if abs(time_us) < ROUNDING_US:
        return "0 us"
    scale, unit = next((scale, unit) for limit_us, scale, unit in UNITS if abs(time_us) < limit_us)
    return f"{time_us / scale:.4g} {unit}"


def share_text(share: float) -> str:
    """A fraction as a percentage."""
    return f"{100.0 * share:.1f} %"


def headline(estimate: StepPrediction) -> str:
    """The prediction in one line."""
    bound = "at least " if estimate.is_lower_bound else ""
    interval, level, sure = estimate.step_time_interval_us, estimate.interval_level, ""
    if interval is not None and level is not None and estimate.ratio_interval is None:  # else the ratio has it
        sure = f", {100.0 * level:.0f} % of steps within {time_text(interval[0])} to {time_text(interval[1])}"
    return f"step {estimate.step_time_kind}: {bound}{time_text(estimate.step_time_us)}{sure}"


def comparison(estimate: StepPrediction) -> str:
    """The measured value and the signed error, or why there is none."""
    plain = estimate.without_profiler
    if plain is not None and plain.is_removed:
        known = "" if plain.error is None else f"{_measured_without(plain)}; "
        return f"without the profiler; {known}measured with it: {time_text(estimate.traced_step_time_us)}"
    if math.isnan(estimate.traced_step_time_us):
        return "planned: it never ran"
    traced = time_text(estimate.traced_step_time_us)
    if estimate.step_time_ratio is not None:
        same_way = time_text(estimate.traced_prediction_us)
        ratio = ratio_text(estimate.step_time_ratio, estimate.ratio_interval, estimate.interval_level)
        return f"{ratio} to {same_way}, predicted the same way for {estimate.traced_hardware}; measured there: {traced}"
    if estimate.step_time_error is None:
        where = f"measured on {estimate.traced_hardware or 'unknown hardware'}: {traced}"
        if estimate.provenance.get("evidence") == TRANSFER:
            return f"{where}, on the machine of the trace"
        return f"{where}; a blind prediction has no ratio"
    left_out = ", work that is not covered left out" if estimate.is_lower_bound else ""
    source = f"; a forecast: latencies and findings are of measured step {estimate.structure_step}"
    made_of = source if estimate.from_trace and estimate.structure_step != estimate.label.step else ""
    error = f"error {100.0 * estimate.step_time_error:+.1f} %{left_out}{made_of}"
    return f"measured {estimate.step_time_kind}: {traced}; {error}"


def ratio_text(ratio: float, bounds: tuple[float, float] | None, level: float | None) -> str:
    """A ratio with its interval."""
    if bounds is None or level is None:
        return f"ratio {ratio:.3f}"
    return f"ratio {ratio:.3f} ({100.0 * level:.0f} % interval {bounds[0]:.2f} to {bounds[1]:.2f})"


def steps_line(estimate: StepPrediction) -> tuple[str, ...]:
    """The measured steps of the trace, which of them are outliers, and which one this is about."""
    measured = estimate.measurements
    if measured is None or len(measured.graph.steps) < 2:
        return ()
    times_us = measured.steps_us
    scale, unit = next((scale, unit) for limit, scale, unit in UNITS if max(times_us.values()) < limit)
    shown = [f"{us / scale:.4g}" for us in times_us.values()][:MOST_STEPS]
    more = f" and {len(times_us) - MOST_STEPS} more" if len(times_us) > MOST_STEPS else ""
    numbers = ", ".join(map(str, list(times_us)[:MOST_STEPS]))
    odd, every = ", ".join(map(str, sorted(measured.outliers))), ", ".join(shown)
    named = "" if not odd else f"; {odd} {'is an outlier' if len(measured.outliers) == 1 else 'are outliers'}"
    own, kinds = estimate.label.step, len(set(measured.shapes.values()))
    alike = [step for step, shapes in measured.shapes.items() if shapes == measured.shapes[own] and step != own]
    like = ", ".join(map(str, alike[:MOST_STEPS])) or "no other"
    shaped = f"; steps have {kinds} sets of shapes, {like} the same as this one" if kinds > 1 else ""
    return (f"measured steps {numbers}{more}: {every} {unit}{named}; this is step {own}{shaped}",)


def profiler_line(estimate: StepPrediction) -> tuple[str, ...]:
    """The step without the profiler that recorded it, where that is another."""
    plain = estimate.without_profiler
    if plain is None or plain.is_removed:
        return ()
    measured = "" if plain.error is None else f"{_measured_without(plain)}; "
    step, each = time_text(plain.step_time_us), f"its cost is {plain.cost.op_us:.1f} us per op of the host"
    return (f"without the profiler: about {step} ({measured}{each}; profiler=remove starts from that step)",)


def _measured_without(plain: WithoutProfiler) -> str:
    assert plain.error is not None, "the caller has checked"
    return f"measured without it: {time_text(plain.measured_us)}, error {100.0 * plain.error:+.1f} %"


def whatif_lines(estimate: StepPrediction) -> list[str]:
    """Both step times, their difference and the edits; nothing without edits."""
    whatif, difference_us = estimate.whatif, estimate.whatif_difference_us
    if whatif is None or difference_us is None:
        return []
    bound = "at least " if whatif.prediction.is_lower_bound else ""
    share = f" ({100.0 * difference_us / estimate.step_time_us:+.1f} %)" if estimate.step_time_us > 0 else ""
    difference = f"{'+' if difference_us >= 0 else ''}{time_text(difference_us)}{share}"
    times = f"{bound}{time_text(whatif.step_time_us)}, unedited {time_text(estimate.step_time_us)}"
    count = f"{counted(whatif.num_touched, 'node')} changed"
    ratio = ""
    if estimate.step_time_us > 0:
        over, level = whatif.step_time_us / estimate.step_time_us, estimate.interval_level
        ratio = f", {ratio_text(over, whatif.ratio_interval, level)}"
    first = f"what if: {times}, difference {difference}{ratio}; {count}"
    own = estimate.measured_step_time_us
    measured = [f"  measured, unedited: {time_text(own)}"] if own is not None and math.isfinite(own) else []
    return [
        first, *measured, *(f"  {edit}" for edit in whatif.edits),
        *(f"  effect: {sentence}" for sentence in whatif.result), *(f"  not known: {one}" for one in whatif.unknown),
    ]  # fmt: skip


def notes_left(estimate: StepPrediction) -> str:
    """How many warnings and notes are not shown above the result; "" none."""
    left = len(estimate.warnings[MOST_WARNINGS:]) + len(estimate.notes)
    return f"{counted(left, 'more note')}: --verbose, or report.html" if left else ""


def finding_head(result: Finding) -> str:
    """What it is and what its remedy would gain."""
    gain = "gain not known"
    if result.gain_us is not None and result.gain_share is not None:
        bound, share = "at most " if result.at_most else "", share_text(result.gain_share)
        step = time_text(result.gain_us / result.gain_share if result.gain_share else None)  # all ranks start at once
        gain = f"gain {bound}{time_text(result.gain_us)} ({share} of the {step} step of {result.basis} latencies)"
    return f"{result.rule.replace('_', ' ')}: {result.cause}; {gain}"


def finding_details(result: Finding) -> list[str]:
    """Evidence, the edit whose gain it is, what that cannot know, and what to do."""
    edit = [f"edit: {result.edit}, on {result.basis} latencies"] if result.edit else []
    return [*result.evidence, *edit, *(f"not known: {one}" for one in result.unknown), f"what to do: {result.remedy}"]


def bytes_text(num_bytes: int) -> str:
    """A size with four digits and its unit."""
    limit_of_unit = ((2**20, 2**10, "KiB"), (2**30, 2**20, "MiB"), (math.inf, 2**30, "GiB"))
    scale, unit = next((scale, unit) for limit, scale, unit in limit_of_unit if num_bytes < limit)
    return f"{num_bytes / scale:.4g} {unit}"


def shapes_text(input_dims: str) -> str:
    """A JSON list of shapes as people write them: [[2,3],[],[4]] is "2×3, 4"; a text that is no such list stays."""
    try:
        result = json.loads(input_dims)
    except ValueError:
        return input_dims
    return ", ".join(filter(None, map(_shape, result))) if isinstance(result, list) else input_dims


def _shape(dims: Any) -> str:
    if not isinstance(dims, list) or not dims:
        return ""  # no tensor, or one value
    if any(isinstance(edge, list) for edge in dims):
        return f"({', '.join(filter(None, map(_shape, dims)))})"
    return "×".join(map(str, dims))


def memory_lines(estimate: StepPrediction) -> list[str]:
    """Peak memory rank by rank: of what, at which op, next to the measured one; with edits; whether it fits."""
    fullest = sorted(estimate.peak_memory, key=lambda rank: -rank.peak.peak_bytes)[:MOST_RANKS]
    shown, left = sorted(fullest, key=lambda rank: rank.peak.rank), len(estimate.peak_memory) - len(fullest)
    rest = [f"{left} more ranks hold no more than these"] if left else []
    result = [*(_memory_line(rank) for rank in shown), *rest, *fit_lines(estimate.peak_memory, estimate.hardware)]
    if estimate.whatif is None:
        return result
    edited = estimate.whatif.prediction.peak_memory
    unedited = {rank.peak.rank: rank.peak.peak_bytes for rank in estimate.peak_memory}
    for rank in edited:
        now, before = rank.peak.peak_bytes, unedited[rank.peak.rank]
        result.append(f"what if: peak memory of rank {rank.peak.rank}: {bytes_text(now)}, unedited "
                      f"{bytes_text(before)} ({100.0 * (now / max(before, 1) - 1.0):+.1f} %)")  # fmt: skip
    return [*result, *(f"what if: {line}" for line in fit_lines(edited, estimate.hardware))]


def fit_lines(ranks: Sequence[RankMemory], hardware: str) -> list[str]:
    """Whether the fullest rank fits into its device; nothing where that is unknown."""
    known = [rank for rank in ranks if rank.left_bytes is not None]
    if not known:
        return []
    fullest = max(known, key=lambda rank: rank.peak.peak_bytes)
    left, device = fullest.left_bytes, fullest.device_bytes
    assert left is not None, "chosen so"
    assert device is not None, "chosen so"
    rank, size = fullest.peak.rank, f"{bytes_text(fullest.peak.peak_bytes)} of {bytes_text(int(device))} of {hardware}"
    if left < 0:
        return [f"memory does not fit: rank {rank} needs {size}, {bytes_text(int(-left))} too much; {OUTSIDE}"]
    if missing := sorted({part for one in known for part in one.peak.missing}):
        named = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        return [f"whether memory fits is unknown: the trace does not show {named}; the tensors that it "
                f"shows take {size} on rank {rank}"]  # fmt: skip
    return [f"memory fits: rank {rank}, the fullest, takes {size}, {bytes_text(int(left))} left; {OUTSIDE}"]


def _memory_line(rank: RankMemory) -> str:
    peak, measured = rank.peak, rank.measured
    parts = {**{str(part): n for part, n in peak.parts_bytes.items()}, "DDP's buckets": peak.buckets_bytes}
    made_of = ", ".join(f"{name.replace('_', ' ')} {bytes_text(n)}" for name, n in parts.items() if n)
    most = peak.most_reserved_bytes
    reserved = "" if most is None else f", with freed blocks up to {bytes_text(most)}"
    compared = ""
    if measured is not None and rank.error is not None:
        counted, result = bytes_text(measured.counted_bytes(peak)), bytes_text(measured.peak_bytes)
        compared = f"; counted as recorded {counted}, measured {result}, error {100.0 * rank.error:+.1f} %"
    size = f"{bytes_text(peak.peak_bytes)}{reserved}"
    return f"peak memory of rank {peak.rank}: {size} at {peak.at or UNKNOWN} ({made_of}){compared}"


def target(estimate: StepPrediction) -> str:
    """What was predicted: run, step, hardware, ranks, mode."""
    graph = estimate.prediction.graph
    on = estimate.hardware or "its own hardware"
    origin = "in the graph" if math.isnan(estimate.traced_step_time_us) else "traced"
    ranks = f"{len(graph.ranks)} of {graph.world_size} ranks {origin}"
    placed = f", {estimate.placement}" if graph.world_size > 1 and estimate.placement else ""
    step = f"step {estimate.label.step} ({estimate.label.name})"
    return f"{graph.name}, {step}, on {on}, {ranks}{placed}, mode {estimate.mode}"


def collectives_lines(estimate: StepPrediction) -> tuple[str, ...]:
    """What predicts collectives, in a run that has any."""
    by = estimate.provenance.get("collectives")
    return (f"collectives {by}",) if by and estimate.prediction.graph.world_size > 1 else ()


def coverage(estimate: StepPrediction) -> str:
    """How many nodes each source predicts, and how much of the measured node time the uncovered ones hold."""
    counts = ", ".join(f"{count:,} {name}" for name, count in num_nodes_by_source(estimate).items())
    share = estimate.uncovered_measured_share
    missing = f"; uncovered nodes hold {share_text(share)} of the measured node time" if share else ""
    return f"nodes by source: {counts}{missing}"


def doubts(estimate: StepPrediction) -> tuple[str, ...]:
    """The commonest reasons of nodes that do not take the network's latency, where a network took part."""
    by_reason = num_nodes_by_reason(estimate)
    if not by_reason.keys() & {Source.GNN, Source.GNN_CALIBRATED}:
        return ()
    result = [(count, source, why) for source in DOUBTED for why, count in by_reason.get(source, {}).items()]
    most = [f"{count:,} {source} ({why})" for count, source, why in sorted(result, reverse=True)[:NUM_DOUBTS]]
    return (f"  because: {'; '.join(most)}",) if most else ()


def path_delays(estimate: StepPrediction) -> str:
    """How much of the critical path nothing runs in."""
    return f"delays between its nodes (launch latencies, gaps on streams): {time_text(estimate.critical_delay_us)}"
