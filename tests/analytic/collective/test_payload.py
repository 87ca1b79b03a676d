"""Compressed payloads, uneven splits, mixed links and hierarchies by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.analytic.collective.paths import Level, hierarchical_all_reduce_us, path_of
from gnnperf.analytic.collective.payload import compressed_bytes, uneven_exchange_bytes, uneven_gather_bytes
from gnnperf.errors import InputError
from gnnperf.hardware.spec import LinkSpec

FAST, SLOW = LinkSpec("nvlink", 100e9, 2.0, 1.0, "a"), LinkSpec("wan", 2e9, 5000.0, 0.5, "b")


def test_a_compressed_message_is_its_ratio_and_what_comes_with_it() -> None:
    assert compressed_bytes(np.array([1e6, 0.0]), 0.5, 100.0).tolist() == [500_100.0, 0.0]
    with pytest.raises(InputError, match="ratio"):
        compressed_bytes(np.array([1.0]), 0.0)


def test_the_busiest_rank_rules_an_uneven_exchange() -> None:
    even = np.full((4, 4), 25.0)  # every rank sends 100, keeps 25
    assert uneven_exchange_bytes(even) == pytest.approx(100)
    hot = even.copy()
    hot[:, 0] = 50.0  # everybody sends rank 0 twice as much: it receives 150
    assert uneven_exchange_bytes(hot) == pytest.approx(150 * 4 / 3)
    with pytest.raises(InputError, match="as many rows"):
        uneven_exchange_bytes(np.ones((2, 3)))


def test_the_largest_part_rules_an_uneven_gather() -> None:
    assert uneven_gather_bytes(np.array([1.0, 5.0, 3.0])) == 5.0
    with pytest.raises(InputError, match="part_bytes"):
        uneven_gather_bytes(np.array([-1.0]))


def test_links_in_a_row_add_latency_and_the_slowest_rules() -> None:
    path = path_of([FAST, SLOW, FAST])
    assert (path.bandwidth_bytes_per_s, path.sustained_bandwidth_share, path.latency_us) == (2e9, 0.5, 5004.0)
    assert path.source == "a; b"
    with pytest.raises(InputError, match="at least one"):
        path_of([])


def test_a_hierarchy_sends_an_nth_over_the_slow_link() -> None:
    size = np.array([8e6])
    inside = 10 + 3 * 2.0 + 0.75 * 80  # reduce-scatter over 4, and the gather back
    between = 10 + 2 * 5000.0 + 1.0 * 2e6 / 1e3  # all-reduce of a quarter over 2, at 1 GB/s
    levels = (Level(4, FAST), Level(2, SLOW))
    assert hierarchical_all_reduce_us(size, levels, 10.0) == pytest.approx([2 * inside + between])
    assert hierarchical_all_reduce_us(size, levels[:1], 10.0) == pytest.approx([10 + 6 * 2.0 + 1.5 * 80])
    with pytest.raises(InputError, match="levels"):
        hierarchical_all_reduce_us(size, (), 10.0)
