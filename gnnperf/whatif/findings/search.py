"""All rules on one step; each suspect is judged by what its remedy, as an edit, does to the step time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnnperf.core import InputError, each
from gnnperf.whatif.edit import Edited, apply
from gnnperf.whatif.findings.exposed_communication import exposed_communication
from gnnperf.whatif.findings.finding import Finding, Suspect, Way
from gnnperf.whatif.findings.host_bound import host_bound
from gnnperf.whatif.findings.input_stall import input_stall
from gnnperf.whatif.findings.launch_bound import launch_bound
from gnnperf.whatif.findings.misaligned_products import misaligned_products
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.findings.serialized_streams import serialized_streams
from gnnperf.whatif.findings.skewed_tables import skewed_tables
from gnnperf.whatif.findings.slow_copies import slow_copies
from gnnperf.whatif.findings.stalls import stalls
from gnnperf.whatif.findings.straggler import straggler
from gnnperf.whatif.findings.unfused_chains import unfused_chains
from gnnperf.whatif.horizontal import FuseHorizontally

# Equal calls that do not need each other, one after the other: models or towers that could run as one batched op.
#
# device   |mm|mm|mm|mm|     ->     |bmm|            Wang et al. 2021, "Horizontally Fused Training Array"

REMEDY = "stack their inputs and weights and call the op once (torch.func.vmap, torch.bmm, grouped embedding bags)"


def repeated_models(step: Observed) -> list[Suspect]:
    """There are equal calls that are known not to need each other; whether one call is worth it, the edit says."""
    try:
        fused = FuseHorizontally()(step.graph)
    except InputError:  # none, or nothing shows it
        return []
    way = Way((FuseHorizontally(),), "{horizontal:{}}")
    cause = "equal calls that do not need each other run one by one"
    return [Suspect("repeated_models", cause, fused.result, REMEDY, (way,))]


Rule = Callable[[Observed], Sequence[Suspect]]

RULES: tuple[Rule, ...] = (
    straggler, exposed_communication, host_bound, launch_bound, misaligned_products, input_stall, slow_copies,
    unfused_chains, repeated_models, serialized_streams, skewed_tables, stalls,
)  # fmt: skip
LARGEST_GRAPH = 200_000  # nodes: beyond, edits take longer than the prediction
LEAST_GAIN = 0.02  # share of the step: what gains less is not worth a sentence


def find(step: Observed, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What holds the step up, the largest gain first; at the end what nothing tells the gain of."""
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
            return _finding(step, suspect, way, gain_us, _unknown(edited))
    return _finding(step, suspect, None, None, tuple(refused)) if len(refused) == len(suspect.ways) else None


def _unknown(edited: Edited) -> tuple[str, ...]:
    return tuple(dict.fromkeys(edited.unknown))


def _finding(
    step: Observed, suspect: Suspect, way: Way | None, gain_us: float | None, unknown: tuple[str, ...]
) -> Finding:
    return Finding(
        rule=suspect.rule,
        cause=suspect.cause,
        evidence=suspect.evidence,
        remedy=suspect.remedy,
        basis=step.basis,
        edit="" if way is None else way.text,
        gain_us=gain_us,
        gain_share=gain_us / step.step_time_us if gain_us is not None and step.step_time_us > 0 else None,
        at_most=way is not None and way.at_most,
        unknown=unknown,
    )
