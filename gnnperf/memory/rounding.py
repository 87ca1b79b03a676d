"""How much more than asked for an allocator hands out."""

from __future__ import annotations

CPU_ALIGNMENT_BYTES = 64  # c10/core/alignment.h: gAlignment
CUDA_BLOCK_BYTES = 512  # c10/cuda/CUDACachingAllocator: kMinBlockSize
CUDA_SMALL_BYTES = 2**20  # kSmallSize: the largest block of the pool for small ones
CUDA_SMALL_SEGMENT_BYTES = 2 * 2**20  # kSmallBuffer
CUDA_LARGE_BYTES = 10 * 2**20  # kMinLargeAlloc: from here on a segment is made for the block
CUDA_LARGE_SEGMENT_BYTES = 20 * 2**20  # kLargeBuffer
CUDA_ROUND_BYTES = 2 * 2**20  # kRoundLarge


def cpu_block_bytes(asked_bytes: int) -> int:
    """What torch's CPU allocator takes: blocks begin at multiples of 64 bytes."""
    return _up(asked_bytes, CPU_ALIGNMENT_BYTES)


def cuda_block_bytes(asked_bytes: int) -> int:
    """What `max_memory_allocated` counts for a tensor: multiples of 512 bytes (`round_size`, without divisions)."""
    return _up(asked_bytes, CUDA_BLOCK_BYTES)


def cuda_segment_bytes(block_bytes: int) -> int:
    """What the caching allocator asks the driver for when no free block fits (`get_allocation_size`).

    Up to 1 MiB: 2 MiB, shared by small blocks; up to 10 MiB: 20 MiB; above: the block, in multiples of 2 MiB.
    """
    if block_bytes == 0:
        return 0
    if block_bytes <= CUDA_SMALL_BYTES:
        return CUDA_SMALL_SEGMENT_BYTES
    if block_bytes < CUDA_LARGE_BYTES:
        return CUDA_LARGE_SEGMENT_BYTES
    return _up(block_bytes, CUDA_ROUND_BYTES)


def _up(num_bytes: int, unit_bytes: int) -> int:
    return -(-num_bytes // unit_bytes) * unit_bytes
