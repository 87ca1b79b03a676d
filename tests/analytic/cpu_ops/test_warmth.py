"""What a thread moved since it last ran an op, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.cpu_ops.warmth import between_bytes


def ops(*rows: tuple[str, float, int]) -> pd.DataFrame:
    """(op, bytes, rank), all on one thread of a rank."""
    names, moved, ranks = zip(*rows, strict=True)
    return pd.DataFrame({"op_name": names, "bytes": moved, "rank": ranks, "thread": 0})


def test_what_ran_in_between_counts_not_the_op_itself() -> None:
    """The first add comes after the mm that ends the window, which repeats."""
    found = between_bytes(ops(("add", 3.0, 0), ("mm", 10.0, 0), ("add", 5.0, 0), ("add", 1.0, 0), ("mm", 20.0, 0)))
    assert found.tolist() == [20.0, 3.0, 10.0, 0.0, 6.0]


def test_ranks_have_caches_of_their_own_and_unknown_bytes_count_nothing() -> None:
    found = between_bytes(ops(("add", 1.0, 0), ("mm", 50.0, 1), ("mm", np.nan, 0), ("add", 1.0, 0)))
    assert found.tolist() == [0.0, 0.0, 2.0, 0.0]


def test_an_op_that_runs_once_comes_again_after_the_rest_of_the_window() -> None:
    assert between_bytes(ops(("mm", 4.0, 0), ("relu", 2.0, 0)))[0] == pytest.approx(2.0)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 1e9), st.integers(0, 1)), min_size=1))
def test_never_negative_and_at_most_the_window(rows: list[tuple[str, float, int]]) -> None:
    nodes = ops(*rows)
    whole = nodes.groupby("rank")["bytes"].transform("sum").to_numpy()
    found = between_bytes(nodes)
    assert (found >= 0).all() and (found <= whole * (1 + 1e-9)).all()
