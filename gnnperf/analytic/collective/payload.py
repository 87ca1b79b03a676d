"""What a collective really moves: compressed payloads, uneven splits."""

from __future__ import annotations

import numpy as np

from gnnperf.errors import require


def compressed_bytes(message_bytes: np.ndarray, ratio: float, extra_bytes: float = 0.0) -> np.ndarray:
    """Bytes [n] of a compressed message: what goes over the wire instead of `message_bytes`.

    Quantized collectives (float32 as float16: ratio 0.5) and sparse gradients (ratio: share of values sent, with extra
    bytes for their positions) alike. Compressing and decompressing are kernels, and not counted here.

    Args:
        message_bytes: [n] uncompressed.
        ratio: compressed / uncompressed.
        extra_bytes: scales, positions, headers per message.

    Raises:
        InputError: a ratio that is not positive, or negative extra bytes.
    """
    require(ratio > 0, "ratio", ratio, "a number above 0")
    require(extra_bytes >= 0, "extra_bytes", extra_bytes, "a number from 0 up")
    return np.where(message_bytes > 0, message_bytes * ratio + extra_bytes, message_bytes)


def uneven_exchange_bytes(sent_bytes: np.ndarray) -> float:
    """Message of the even all-to-all that takes as long as this uneven one (all_to_all_v).

    The rank that sends or receives most rules; an even exchange of S leaves (n-1)/n S on its link.

    Args:
        sent_bytes: [n, n] bytes from rank (row) to rank (column); what stays on a rank does not count.

    Raises:
        InputError: not square, or negative.
    """
    square = sent_bytes.ndim == 2 and sent_bytes.shape[0] == sent_bytes.shape[1]
    require(square, "sent_bytes", sent_bytes.shape, "as many rows as columns")
    require(bool((sent_bytes >= 0).all()), "sent_bytes", float(sent_bytes.min()), "numbers from 0 up")
    moved = sent_bytes - np.diag(np.diag(sent_bytes))  # [n, n]
    ranks = len(moved)
    busiest = max(moved.sum(axis=0).max(), moved.sum(axis=1).max())
    return float(busiest * ranks / max(ranks - 1, 1))


def uneven_gather_bytes(part_bytes: np.ndarray) -> float:
    """Message of the even all-gather that takes as long as one of unequal parts: the largest part.

    In each of a ring's n-1 steps some link carries the largest part, and the others wait for it.

    Args:
        part_bytes: [n] each rank's part.

    Raises:
        InputError: no part, or a negative one.
    """
    require(part_bytes.size > 0 and bool((part_bytes >= 0).all()), "part_bytes", part_bytes.size, "numbers from 0 up")
    return float(part_bytes.max())
