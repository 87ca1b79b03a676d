"""All rules on one step; each suspect is judged by what its remedy, as an edit, does to the step time."""

from collections.abc import Callable, Sequence

from gnnperf.core import InputError, each
from gnnperf.whatif.edit import apply
from gnnperf.whatif.findings.communication import exposed_communication, skewed_tables, slow_copies, straggler
from gnnperf.whatif.findings.finding import Finding, Observed, Suspect, Way
from gnnperf.whatif.findings.host import host_bound, input_stall, launch_bound, stalls
from gnnperf.whatif.findings.kernels import misaligned_products, repeated_models, unfused_chains
from gnnperf.whatif.findings.serialized_streams import serialized_streams

Rule = Callable[[Observed], Sequence[Suspect]]

RULES: tuple[Rule, ...] = (
    straggler, exposed_communication, host_bound, launch_bound, misaligned_products, input_stall, slow_copies,
    unfused_chains, repeated_models, serialized_streams, skewed_tables, stalls,
)  # fmt: skip
LARGEST_GRAPH = 200_000  # nodes: beyond, edits take longer than the prediction
LEAST_GAIN = 0.02  # share of the step: a smaller gain is no finding


def find(step: Observed, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """Bottlenecks of the step, the largest gain first; unknown gains at the end."""
    requested = each(rules, "looking for what holds the step up", "rules")
    judged = (_judged(step, suspect) for rule in requested for suspect in rule(step))
    result = [finding for finding in judged if finding is not None]
    return tuple(sorted(result, key=lambda one: (one.gain_us is None, -(one.gain_us or 0.0))))


def _judged(step: Observed, suspect: Suspect) -> Finding | None:
    """The first way that gains enough; None: no way does."""
    if not suspect.ways:
        return _finding(step, suspect, None, None, (suspect.unpriced,))
    refused: list[str] = []
    for way in suspect.ways:
        try:
            edited = apply(step.graph, way.edits)
            after_us = step.step_time_of(edited) if way.step_time_us is None else way.step_time_us
        except InputError as error:
            refused.append(f"{way.text}: {error.what}")
            continue
        gain_us = step.step_time_us - after_us
        if gain_us >= LEAST_GAIN * step.step_time_us:
            return _finding(step, suspect, way, gain_us, tuple(dict.fromkeys(edited.unknown)))
    return _finding(step, suspect, None, None, tuple(refused)) if len(refused) == len(suspect.ways) else None


def _finding(
    step: Observed, suspect: Suspect, way: Way | None, gain_us: float | None, unknown: tuple[str, ...]
) -> Finding:
    share = gain_us / step.step_time_us if gain_us is not None and step.step_time_us > 0 else None
    edit, at_most = ("", False) if way is None else (way.text, way.at_most)
    return Finding(suspect.rule, suspect.cause, suspect.evidence, suspect.remedy, step.basis, edit, gain_us, share,
                   at_most, unknown)  # fmt: skip
