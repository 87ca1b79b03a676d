"""Allocators: numbers by hand from c10/core/alignment.h and c10/cuda/CUDACachingAllocator.cpp."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.memory.planned import cpu_block_bytes, cuda_block_bytes

sizes = st.integers(0, 2**40)


@pytest.mark.parametrize(("requested", "block"), [(0, 0), (1, 64), (64, 64), (65, 128), (4_000, 4_032)])
def test_blocks_on_a_cpu_are_multiples_of_64_bytes(requested: int, block: int) -> None:
    assert cpu_block_bytes(requested) == block


@pytest.mark.parametrize(("requested", "block"), [(0, 0), (1, 512), (512, 512), (513, 1_024), (4_000, 4_096)])
def test_blocks_on_cuda_are_multiples_of_512_bytes(requested: int, block: int) -> None:
    assert cuda_block_bytes(requested) == block


@given(sizes, sizes)
def test_more_requested_is_never_less_handed_out(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert cpu_block_bytes(small) <= cpu_block_bytes(large)
    assert cuda_block_bytes(small) <= cuda_block_bytes(large)


@given(sizes)
def test_a_block_holds_what_was_requested(requested: int) -> None:
    block = cuda_block_bytes(requested)
    assert requested <= block < requested + 512
