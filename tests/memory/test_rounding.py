"""Allocators: numbers by hand from c10/core/alignment.h and c10/cuda/CUDACachingAllocator.cpp."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.memory.planned import cpu_block_bytes, cuda_block_bytes

sizes = st.integers(0, 2**40)


@pytest.mark.parametrize(
    ("requested", "on_cpu", "on_cuda"),
    [(0, 0, 0), (1, 64, 512), (64, 64, 512), (65, 128, 512), (512, 512, 512), (513, 576, 1_024), (4_000, 4_032, 4_096)],
)
def test_blocks_are_multiples_of_64_bytes_on_a_cpu_and_of_512_on_cuda(
    requested: int, on_cpu: int, on_cuda: int
) -> None:
    assert (cpu_block_bytes(requested), cuda_block_bytes(requested)) == (on_cpu, on_cuda)


@given(sizes, sizes)
def test_more_requested_is_never_less_handed_out(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert cpu_block_bytes(small) <= cpu_block_bytes(large)
    assert cuda_block_bytes(small) <= cuda_block_bytes(large)


@given(sizes)
def test_a_block_holds_what_was_requested(requested: int) -> None:
    block = cuda_block_bytes(requested)
    assert requested <= block < requested + 512
