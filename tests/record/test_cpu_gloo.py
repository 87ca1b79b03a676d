from __future__ import annotations

from gnnperf.record.cpu_gloo import cpu_gloo

PLAN = cpu_gloo()
NAMES = [workload.name for workload in PLAN.workloads]


def test_forty_runs_of_three_programs_with_names_of_their_own() -> None:
    assert len(set(NAMES)) == len(NAMES) == 40
    assert {kind: sum(w.kind == kind for w in PLAN.workloads) for kind in ("dlrm", "transformer", "cnn")} == {
        "dlrm": 16, "transformer": 12, "cnn": 12}  # fmt: skip


def test_every_run_is_in_one_part_of_every_axis() -> None:
    for axis, parts in PLAN.splits.items():
        listed = [name for part in ("train", "val", "test") for name in parts[part]]
        assert sorted(listed) == sorted(NAMES), axis
        assert all(parts.values()), axis


def test_sizes_held_out_are_larger_than_any_trained() -> None:
    width = {w.name: (w.kind, w.width) for w in PLAN.workloads}
    for kind in ("dlrm", "transformer", "cnn"):
        parts = {
            part: {width[name][1] for name in PLAN.splits["size"][part] if width[name][0] == kind}
            for part in ("train", "val", "test")
        }
        assert max(parts["train"]) < min(parts["val"]) <= max(parts["val"]) < min(parts["test"])


def test_the_program_held_out_is_in_no_other_part() -> None:
    kind = {w.name: w.kind for w in PLAN.workloads}
    for held_out in ("dlrm", "transformer", "cnn"):
        parts = PLAN.splits[f"workload-{held_out}"]
        assert {kind[name] for name in parts["test"]} == {held_out}
        assert held_out not in {kind[name] for part in ("train", "val") for name in parts[part]}


def test_steps_are_enough_for_both_step_times() -> None:
    assert PLAN.steps.unprofiled >= 20 and PLAN.steps.profiled >= 4
