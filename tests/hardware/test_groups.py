"""How groups lie on machines, by hand and counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.hardware.placement import UNKNOWN, machines_of, progression, ranks_per_machine


def _machines(size: int, first: int, stride: int, ranks_per_node: int) -> int:
    return int(machines_of(np.array([size]), np.array([first]), np.array([stride]), ranks_per_node)[0])


def _together(size: int, first: int, stride: int, ranks_per_node: int) -> int:
    return int(ranks_per_machine(np.array([size]), np.array([first]), np.array([stride]), ranks_per_node)[0])


@pytest.mark.parametrize(
    ("ranks", "place"),
    [([4, 0, 8], (0, 4)), ([3, 5], (3, 2)), ([0, 1, 3], (0, UNKNOWN)), ([7], (7, UNKNOWN)), ([], (UNKNOWN, UNKNOWN))],
)
def test_progressions(ranks: list[int], place: tuple[int, int]) -> None:
    assert progression(ranks) == place


@given(size=st.integers(1, 40), first=st.integers(0, 30), stride=st.integers(1, 20), per_node=st.integers(1, 12))
def test_machines_are_counted(size: int, first: int, stride: int, per_node: int) -> None:
    counted = len({(first + stride * i) // per_node for i in range(size)})
    assert _machines(size, first, stride, per_node) == counted


def test_groups_that_do_not_say_where_they_are_fill_machines() -> None:
    assert [_machines(size, -1, -1, 8) for size in (-1, 1, 8, 9, 17)] == [1, 1, 1, 2, 3]
    assert _together(17, -1, -1, 8) == 8


def test_who_shares_a_machine() -> None:
    assert _together(128, 0, 8, 8) == 1  # replicas of tensor-parallel machines
    assert _together(16, 0, 4, 8) == 2
    assert _together(4, 0, 1, 8) == 8  # inside one machine: its links are all there
    assert _together(2, 7, 1, 8) == 1  # neighbors on two machines
