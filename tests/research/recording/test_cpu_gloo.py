from collections import Counter

from research.recording.cpu_gloo import cpu_again, cpu_gloo, parallelism
from research.recording.plan import Change
from research.recording.run import RunSpec

PLAN = cpu_gloo()
RUN = {run.name: run for run in PLAN.runs}
SPLIT_RUNS = {name for parts in PLAN.splits.values() for names in parts.values() for name in names}


def parts(axis: str) -> tuple[list[RunSpec], list[RunSpec]]:
    """(train and validation, test) of an axis."""
    split = PLAN.splits[axis]
    return [RUN[name] for part in ("train", "val") for name in split[part]], [RUN[name] for name in split["test"]]


def test_runs_are_many_and_have_names_of_their_own() -> None:
    assert len(RUN) == len(PLAN.runs) and len(SPLIT_RUNS) >= 240
    kinds = Counter(run.workload.kind for run in PLAN.runs)
    assert set(kinds) == {"dlrm", "transformer", "cnn", "moe", "rl", "random_graph"} and min(kinds.values()) >= 8
    assert {parallelism(run) for run in PLAN.runs} == {
        "ddp", "fsdp", "tp", "pp", "ep", "table_wise", "row_wise", "column_wise"}  # fmt: skip
    assert {run.link.name for run in PLAN.runs} == {"lo", "0.25g", "1g", "5g"}
    assert {run.world_size for run in PLAN.runs} == {1, 2, 4}


def test_every_run_is_in_one_part_of_every_axis_or_serves_pairs_only() -> None:
    for axis, split in PLAN.splits.items():
        listed = [name for part in ("train", "val", "test") for name in split[part]]
        assert sorted(listed) == sorted(SPLIT_RUNS) or axis == "demo", axis
        assert len(set(listed)) == len(listed) and all(split.values()), axis
    paired = {run.name for pair in PLAN.pairs for run in (pair.a, pair.b)}
    assert set(RUN) == SPLIT_RUNS | paired


def test_sizes_held_out_are_larger_than_any_trained() -> None:
    split = PLAN.splits["size"]
    for kind in {run.workload.kind for run in PLAN.runs}:
        widths = {
            part: {RUN[name].workload.width for name in names if RUN[name].workload.kind == kind}
            for part, names in split.items()
        }
        if widths["test"]:
            assert max(widths["train"]) < min(widths["val"]) <= max(widths["val"]) < min(widths["test"])


def test_axes_are_disjoint_along_what_they_name() -> None:
    for axis, of in (
        ("link", lambda run: run.link), ("world_size", lambda run: run.world_size), ("parallelism", parallelism),
        ("workload", lambda run: run.workload.kind), ("workload-dlrm", lambda run: run.workload.kind),
    ):  # fmt: skip
        seen, held_out = parts(axis)
        assert {of(run) for run in seen}.isdisjoint({of(run) for run in held_out}), axis


def test_pairs_are_enough_and_differ_by_what_they_name() -> None:
    counts = Counter(pair.change for pair in PLAN.pairs)
    assert len(PLAN.pairs) >= 60 and set(counts) == set(Change) and min(counts.values()) >= 8
    for pair in PLAN.pairs:
        assert pair.a != pair.b and pair.a.world_size == pair.b.world_size
        assert (pair.a.link != pair.b.link) == (pair.change == Change.LINK)
        assert (pair.a.workload != pair.b.workload) == (pair.change not in (Change.LINK, Change.SLEEP))
        assert (pair.b.sleep is not None) == (pair.change == Change.SLEEP) and pair.a.sleep is None
    assert len({(pair.a.name, pair.b.name) for pair in PLAN.pairs}) == len(PLAN.pairs)


def test_steps_and_repeats_are_what_a_noise_floor_needs() -> None:
    assert PLAN.steps.unprofiled >= 20 and PLAN.steps.profiled >= 4
    assert PLAN.repeats == 2 and PLAN.min_gap_s >= 1800 and PLAN.max_drift <= 0.03
    order = [spec.name for spec, _ in PLAN.recordings()]
    assert order[: len(PLAN.runs)] == order[len(PLAN.runs) :]  # one pass, then the other


def test_cpu_again_holds_the_runs_that_the_axis_run_does_not_train_on_of_every_program_and_link() -> None:
    plan, first = cpu_again(), PLAN.splits["run"]
    names = {run.name for run in plan.runs}
    assert names == {*first["val"], *first["test"]}
    assert not names & set(first["train"])
    assert plan.splits["again"] == {"train": [], "val": tuple(first["val"]), "test": tuple(first["test"])}
    assert all(RUN[run.name] == run for run in plan.runs) and plan.steps == PLAN.steps
    assert {run.workload.kind for run in plan.runs} == {run.workload.kind for run in PLAN.runs}
    assert {run.link.name for run in plan.runs} == {"lo", "0.25g", "1g", "5g"}
    assert {run.world_size for run in plan.runs} == {1, 2, 4}
