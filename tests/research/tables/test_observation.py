"""What a pair of events reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.memory_constants import EventGap
from research.tables.observation import between_events_us

GAP = EventGap(call_us=20.0, issue_share=0.5)


def test_short_kernels_read_the_call_and_long_ones_their_time_after_the_issue() -> None:
    assert between_events_us(np.array([0.0, 2.0, 1000.0]), GAP) == pytest.approx([20.0, 20.0, 1010.0], rel=0.01)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_longer_kernels_never_read_shorter(one: float, other: float) -> None:
    first, second = between_events_us(np.sort(np.array([one, other])), GAP)
    assert 20.0 <= first <= second * (1 + 1e-12)
