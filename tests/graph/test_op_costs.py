"""The cost of an op without a formula is the sum over its children; what no child knows stays unknown."""

from __future__ import annotations

import numpy as np

from gnnperf.graph.op_costs import _sum_up

#   0 unknown op
#   +- 1 works: 10 flop, 100 bytes          (hides 2)
#   |  +- 2 works: 7 flop, 70 bytes
#   +- 3 unknown op
#      +- 4 works: flop unknown, 300 bytes
#   5 unknown op with a child that knows its bytes only
#   +- 6 works: flop unknown, 5 bytes
#   7 nothing known
PARENT = np.array([-1, 0, 1, 0, 3, -1, 5, -1])
WORKS = np.array([False, True, True, False, True, False, True, False])
FLOPS = np.array([np.nan, 10.0, 7.0, np.nan, np.nan, np.nan, np.nan, np.nan])
BYTES = np.array([np.nan, 100.0, 70.0, np.nan, 300.0, np.nan, 5.0, np.nan])


def test_children_add_up_and_unknown_is_not_zero() -> None:
    flops, moved, main = _sum_up(PARENT, WORKS, FLOPS, BYTES)
    assert (flops[0], moved[0], main[0]) == (10.0, 400.0, 4)  # the child that moves most gives family and dtype
    assert (flops[1], moved[1]) == (10.0, 100.0)
    assert np.isnan(flops[3]) and moved[3] == 300.0
    assert np.isnan(flops[5]) and moved[5] == 5.0
    assert np.isnan(flops[7]) and np.isnan(moved[7]) and main[7] == -1
