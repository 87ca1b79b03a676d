"""Runs that the axis `run` of `cpu-gloo` does not train on, for another day or another machine."""

from __future__ import annotations

from gnnperf.record.cpu_gloo import cpu_gloo
from gnnperf.record.plan import Plan

AXIS, SAME_RUNS_AS = "again", "run"
# Weaker than those of cpu-gloo, so that the plan takes half an hour on a machine that is less steady; its noise floor
# tells what that costs.
MIN_GAP_S, MAX_DRIFT = 300.0, 0.1


def cpu_again() -> Plan:
    """The plan. Who trained on the axis `run` has seen none of these runs, on whichever machine."""
    first = cpu_gloo()
    parts = {part: tuple(first.splits[SAME_RUNS_AS][part]) for part in ("val", "test")}
    held_out = {name for names in parts.values() for name in names}
    return Plan(
        name="cpu-again",
        runs=tuple(run for run in first.runs if run.name in held_out),
        steps=first.steps,
        splits={AXIS: {"train": [], **parts}},
        axes={AXIS: f"day and machine: what `{SAME_RUNS_AS}` of cpu-gloo validates and tests on, recorded again"},
        min_gap_s=MIN_GAP_S,
        max_drift=MAX_DRIFT,
    )
