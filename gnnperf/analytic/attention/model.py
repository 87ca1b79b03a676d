"""Fused attention: the scores of pairs of positions stay on chip.

Backward computes them again, five products instead of four (Dao et al. 2022). Causal kernels skip what is masked (Dao
2023). A block holds one head's 128 queries, so short sequences leave SMs idle (waves), and a head's columns are padded
to the kernel's next width. Attention that is not fused is the sum of its calls: `op_tables.unfused_attention`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import stream_us
from gnnperf.hardware import DeviceSpec

FORWARD_PRODUCTS, FUSED_BACKWARD_PRODUCTS = 2, 5  # Dao 2023, section 4.1: 4 and 10 FLOPs per pair and column
BLOCK_QUERIES = 128  # Dao 2023; backward blocks hold as many keys
WIDE = 128.0
HEAD_WIDTHS = np.array([32.0, 64.0, 96.0, 128.0, 160.0, 192.0, 224.0, 256.0])  # flash_attn 2: one kernel for each


@dataclass(frozen=True)
class Attentions:
    """Calls of attention; each field [calls].

    Attributes:
        batch: sequences.
        heads: of the queries.
        queries: positions that ask.
        keys: positions that are asked.
        head_dim: columns of a head.
        causal: bool: a query sees no later key.
    """

    batch: np.ndarray
    heads: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    head_dim: np.ndarray
    causal: np.ndarray

    @property
    def pairs(self) -> np.ndarray:
        """Query-key pairs [calls] that are not masked, over all heads; the mask is aligned at the top left."""
        diagonal = np.minimum(self.queries, self.keys)
        below = np.maximum(self.queries - self.keys, 0.0) * self.keys
        visible = np.where(self.causal, diagonal * (diagonal + 1) / 2 + below, self.queries * self.keys)
        return self.batch * self.heads * visible


@dataclass(frozen=True)
class FusedRates:
    """What a fused kernel reaches.

    Attributes:
        flops_share: of the matrix units' peak, full waves and wide heads.
        pair_columns: what softmax costs per pair, as columns of a head.
        uneven_share: of that rate where the head's columns have to be padded.
        wide_share: of that rate for heads of more than WIDE columns, whose blocks are smaller.
        blocks_per_sm: that run at a time.
        start_us: beside the device's launch floor.
    """

    flops_share: float
    pair_columns: float
    uneven_share: float
    wide_share: float
    blocks_per_sm: float
    start_us: float


def flops(calls: Attentions, backward: bool = False) -> np.ndarray:
    """FLOPs [calls] of the products of a fused kernel; softmax is not counted."""
    return 2.0 * (FUSED_BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS) * calls.pairs * calls.head_dim


def fused_bytes(calls: Attentions, item_bytes: int, backward: bool = False) -> np.ndarray:
    """Bytes [calls]: queries, keys, values and result; backward also their gradients. No scores."""
    tokens = calls.batch * calls.heads * (calls.queries + calls.keys)  # queries and results, keys and values
    return tokens * calls.head_dim * float(2 * item_bytes * (2 if backward else 1))


def fused_us(
    calls: Attentions,
    item_bytes: int,
    peak_flops_per_s: float,
    device: DeviceSpec,
    constants: MemoryConstants,
    rates: FusedRates,
    backward: bool = False,
) -> np.ndarray:
    """Device time [calls] us of a fused kernel: the longer of waves of blocks and bytes.

    Args:
        calls: sizes.
        item_bytes: of an element.
        peak_flops_per_s: of the matrix units for that dtype.
        device: SMs, bandwidth, floor.
        constants: sustained bandwidth.
        rates: what the kernel reaches.
        backward: the gradient.
    """
    padded = HEAD_WIDTHS[np.minimum(np.searchsorted(HEAD_WIDTHS, calls.head_dim), len(HEAD_WIDTHS) - 1)]  # [calls]
    width = np.maximum(padded, calls.head_dim)
    along = calls.keys if backward else calls.queries
    blocks = calls.batch * calls.heads * np.ceil(along / BLOCK_QUERIES)  # [calls]
    at_a_time = device.num_sms * rates.blocks_per_sm
    idle = np.ceil(blocks / at_a_time) * at_a_time / np.maximum(blocks, 1.0)  # [calls] from 1 up
    work = flops(calls, backward) * ((width + rates.pair_columns) / calls.head_dim) * idle  # [calls]
    slowed = np.where(width > calls.head_dim, rates.uneven_share, 1.0) * np.where(width > WIDE, rates.wide_share, 1.0)
    compute = work / (peak_flops_per_s * rates.flops_share * slowed) * 1e6 + device.launch_floor_us  # [calls]
    return rates.start_us + np.maximum(compute, stream_us(fused_bytes(calls, item_bytes, backward), device, constants))
