"""Every step of an epoch goes to exactly one process, in batches as large as those of one process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.module import EpochShuffle, SharedBatches


def shares(size: int, batch_size: int, count: int) -> list[list[list[int]]]:
    """Process -> its batches."""
    return [list(SharedBatches(EpochShuffle(size, seed=3), batch_size, rank, count)) for rank in range(count)]


def test_one_process_takes_whole_batches() -> None:
    order = list(EpochShuffle(7, seed=3))
    assert shares(7, 3, 1) == [[order[:3], order[3:6], order[6:]]]


def test_two_processes_divide_each_batch_and_a_single_last_step_joins_the_batch_before() -> None:
    order = list(EpochShuffle(7, seed=3))
    assert shares(7, 3, 2) == [
        [[order[0], order[2]], [order[3], order[5]]],  # the second batch has 4 steps: 3, 4, 5 and the lone 6
        [[order[1]], [order[4], order[6]]],
    ]


@given(size=st.integers(1, 60), batch_size=st.integers(1, 9), count=st.integers(1, 5))
def test_each_step_once_and_no_process_without_work(size: int, batch_size: int, count: int) -> None:
    if min(size, batch_size) < count:
        with pytest.raises(InputError, match=r"data\.batch_size: .* processes share batches"):
            shares(size, batch_size, count)
        return
    result = shares(size, batch_size, count)
    assert sorted(step for batches in result for batch in batches for step in batch) == list(range(size))
    assert {len(batches) for batches in result} == {len(SharedBatches(EpochShuffle(size, 3), batch_size, 0, count))}
    assert all(batch for batches in result for batch in batches)
