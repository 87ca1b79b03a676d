"""The most that the caching allocator reserves, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate import HeldFor, Hold, Pair, RankTensors
from gnnperf.generate.uses import Stretch, use
from gnnperf.memory.planned import MEBIBYTE, cpu_block_bytes, cuda_block_bytes, most_reserved_bytes, planned_peak


def _tensors(*stretches: Stretch | Hold, parameters: tuple[int, ...] = ()) -> RankTensors:
    return RankTensors(0, parameters, (), (), tuple(stretches))


def test_tensors_of_other_sizes_that_follow_each_other_may_keep_segments_each() -> None:
    """30 MiB, then 40 MiB: allocated are 40, reserved at worst both."""
    pair = Pair((use("one", "", a=30 * MEBIBYTE), use("two", "a"), use("three", "", b=40 * MEBIBYTE)), ())
    tensors = _tensors(Stretch(pair, False))
    assert planned_peak(tensors).peak_bytes == 40 * MEBIBYTE
    assert most_reserved_bytes(tensors) == 70 * MEBIBYTE


def test_tensors_of_one_size_share_their_segment() -> None:
    pair = Pair((use("one", "", a=30 * MEBIBYTE), use("two", "a"), use("three", "", b=30 * MEBIBYTE)), ())
    assert most_reserved_bytes(_tensors(Stretch(pair, False), Stretch(pair, False))) == 30 * MEBIBYTE


def test_segments_of_large_middle_and_small_tensors_have_their_units() -> None:
    """11.5 MiB take 12; 3 MiB a segment of 20; 512 bytes one of 2."""
    tensors = _tensors(parameters=(23 * MEBIBYTE // 2, 3 * MEBIBYTE, 100))
    assert most_reserved_bytes(tensors) == (12 + 20 + 2) * MEBIBYTE


def test_what_comes_and_goes_between_stretches_counts() -> None:
    hold = [Hold("all_gather", HeldFor.GATHERED, n * 16 * MEBIBYTE) for n in (1, -1, 1, -1)]
    assert most_reserved_bytes(_tensors(*hold)) == 16 * MEBIBYTE


def test_what_neighbors_pass_on_is_counted_once() -> None:
    first = Pair((use("recv", y=16 * MEBIBYTE),), (use("send", "dy"),), {"dy": 16 * MEBIBYTE})
    last = Pair((use("send", "x"),), (use("recv", dx=16 * MEBIBYTE),), {"x": 16 * MEBIBYTE})
    step = [Stretch(first, False), Stretch(last, False), Stretch(last, True), Stretch(first, True)]
    assert most_reserved_bytes(_tensors(*step)) == 16 * MEBIBYTE


# Allocators: numbers by hand from c10/core/alignment.h and c10/cuda/CUDACachingAllocator.cpp.


@pytest.mark.parametrize(
    ("requested", "on_cpu", "on_cuda"),
    [(0, 0, 0), (1, 64, 512), (64, 64, 512), (65, 128, 512), (512, 512, 512), (513, 576, 1_024), (4_000, 4_032, 4_096)],
)
def test_blocks_are_multiples_of_64_bytes_on_a_cpu_and_of_512_on_cuda(
    requested: int, on_cpu: int, on_cuda: int
) -> None:
    assert (cpu_block_bytes(requested), cuda_block_bytes(requested)) == (on_cpu, on_cuda)


@given(st.integers(0, 2**40))
def test_a_block_is_the_smallest_multiple_that_holds_what_was_requested(requested: int) -> None:
    for block, unit in ((cpu_block_bytes(requested), 64), (cuda_block_bytes(requested), 512)):
        assert block % unit == 0 and requested <= block < requested + unit
