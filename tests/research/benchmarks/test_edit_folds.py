from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from research.benchmarks._cached_networks import dealt
from research.benchmarks._edit_folds import FOLDS, Run, edit_folds, groups

NAMES = [f"run{place}" for place in range(12)]
some_pairs = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=10)


def test_groups_are_what_pairs_connect() -> None:
    result = groups("fabcde", [("a", "b"), ("d", "c"), ("e", "d")])
    assert result == [("a", "b"), ("c", "d", "e"), ("f",)]


def test_the_largest_of_each_kind_is_dealt_first() -> None:
    sizes = {"a": ("x", 5.0), "b": ("x", 3.0), "c": ("x", 3.0), "d": ("y", 4.0)}
    assert dealt(sizes, 2) == [("a", "d"), ("b", "c")]  # x: 5 against 3 + 3; then y to the smaller part


@given(some_pairs)
def test_neither_end_of_a_pair_is_trained_or_validated_on(pairs: list[tuple[str, str]]) -> None:
    runs = {name: Run("ab"[place % 2], 1.0 + place, (f"{name}/1", f"{name}/2")) for place, name in enumerate(NAMES)}
    folds = edit_folds(runs, pairs)
    assert sorted(run for fold in folds for run in fold.held_out) == sorted(NAMES)
    for fold in folds:
        known = {name.partition("/")[0] for part in ("train", "val") for name in fold.split.part(part)}
        assert not known & fold.held_out and known | fold.held_out == set(NAMES)
        assert all((a in fold.held_out) == (b in fold.held_out) for a, b in pairs)
        assert not set(fold.split.train) & set(fold.split.val) and fold.split.test == ()
    assert len(folds) == FOLDS
