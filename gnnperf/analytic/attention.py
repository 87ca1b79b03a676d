"""Fused attention: the scores of pairs of positions stay on chip.

Backward computes them again, five products instead of four (Dao et al. 2022). Causal kernels skip what is masked (Dao
2023). A block holds one head's 128 queries, so short sequences leave SMs idle (waves), and a head's columns are padded
to the kernel's next width. Attention that is not fused is the sum of its calls in a trace.

What a fused kernel reaches (`fused_rates`) is not fitted:

- its products run at the share of the peak that large products reach (`GemmConstants.compute_share`); on Hopper,
  kernels that issue matrix instructions by warp (FlashAttention 2, which torch ships) see less of the units
  (WARP_SHARE: Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", mma against wgmma);
- a pair of query and key costs an exponential, of which an SM finishes EXPONENTIALS_PER_CLOCK (CUDA C++ programming
  guide, throughput of native arithmetic); that is as long as so many columns of a head take (Shah et al. 2024,
  FlashAttention-3, section 1, makes the same count). It is computed again backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.gemm.calls import as_specified
from gnnperf.analytic.gemm.constants import typical
from gnnperf.analytic.gemm.model import ITEM_BYTES, rate_key
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, rounded_up, sized
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import stream_us, traffic_us
from gnnperf.graph import UnknownCost
from gnnperf.hardware import DeviceSpec

FORWARD_PRODUCTS, FUSED_BACKWARD_PRODUCTS = 2, 5  # Dao 2023, section 4.1: 4 and 10 FLOPs per pair and column
BLOCK_QUERIES = 128  # Dao 2023; backward blocks hold as many keys
# Of cuDNN on H200 (datasets/h200): two blocks at a time on a causal mask's diagonal, and no kernel for narrower heads.
CUDNN_DIAGONAL, CUDNN_WIDTH = 2 * BLOCK_QUERIES, 64.0
HEAD_WIDTHS = np.array([32.0, 64.0, 96.0, 128.0, 160.0, 192.0, 224.0, 256.0])  # flash_attn 2: one kernel for each


@dataclass(frozen=True)
class Attentions:
    """Calls of attention; each field [calls]."""

    batch: np.ndarray  # sequences
    heads: np.ndarray  # of the queries
    queries: np.ndarray  # positions of the result
    keys: np.ndarray  # positions that each query is compared with
    head_dim: np.ndarray  # columns of a head
    causal: np.ndarray  # bool: a query sees no later key
    lower_right: np.ndarray | bool = False  # bool: the mask is aligned at the last query and key, not at the first
    cudnn: np.ndarray | bool = False  # bool: a kernel of cuDNN, see CUDNN_DIAGONAL
    block: np.ndarray | float = BLOCK_QUERIES  # queries of a block

    @property
    def pairs(self) -> np.ndarray:
        """Query-key pairs [calls] that are not masked, over all heads."""
        return self._pairs(np.ones(1))

    @property
    def computed_pairs(self) -> np.ndarray:
        """Pairs [calls] that blocks compute: those on the diagonal do not skip what is masked."""
        return self._pairs(np.where(self.cudnn, CUDNN_DIAGONAL, self.block))

    def _pairs(self, block: np.ndarray) -> np.ndarray:
        diagonal = np.minimum(self.queries, self.keys)
        below = np.maximum(self.queries - self.keys, 0.0) * self.keys
        before = np.maximum(self.keys - self.queries, 0.0) * self.queries
        visible = diagonal * (diagonal + block) / 2 + np.where(self.lower_right, before, below)
        visible = np.where(self.causal, visible, self.queries * self.keys)
        return self.batch * self.heads * np.minimum(visible, self.queries * self.keys)


def flops(calls: Attentions, backward: bool = False) -> np.ndarray:
    """FLOPs [calls] of the products of a fused kernel; softmax is not counted."""
    return 2.0 * (FUSED_BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS) * calls.pairs * calls.head_dim


def fused_bytes(calls: Attentions, item_bytes: float, backward: bool = False) -> np.ndarray:
    """Bytes [calls]: queries, keys, values and result; backward also their gradients. No scores."""
    tokens = calls.batch * calls.heads * (calls.queries + calls.keys)  # queries and results, keys and values
    return tokens * calls.head_dim * float(2 * item_bytes * (2 if backward else 1))


def fused_us(
    calls: Attentions, item_bytes: float, peak_flops_per_s: float, device: DeviceSpec, constants: MemoryConstants,
    rates: tuple[float, float], backward: bool = False,
) -> np.ndarray:  # fmt: skip
    """Device time [calls] us of a fused kernel: the longer of waves of blocks and bytes."""
    padded = HEAD_WIDTHS[np.minimum(np.searchsorted(HEAD_WIDTHS, calls.head_dim), len(HEAD_WIDTHS) - 1)]  # [calls]
    width = np.maximum(np.maximum(padded, calls.head_dim), np.where(calls.cudnn, CUDNN_WIDTH, 0.0))
    share, pair_columns = rates
    along = calls.keys if backward else calls.queries
    blocks = calls.batch * calls.heads * np.ceil(along / calls.block)  # [calls]
    idle = np.ceil(blocks / device.num_sms) * device.num_sms / np.maximum(blocks, 1.0)  # [calls] from 1 up
    work = flops(calls, backward) * calls.computed_pairs / calls.pairs  # [calls]
    work *= (width + pair_columns) / calls.head_dim * idle
    compute = work / (peak_flops_per_s * share) * 1e6 + device.launch_floor_us  # [calls]
    own = np.maximum(compute, stream_us(fused_bytes(calls, item_bytes, backward), device, constants))
    sums = calls.batch * calls.heads * calls.queries * calls.head_dim * SUMS_BYTES  # [calls]
    return own + (traffic_us(sums, 1.0, device, constants) if backward else 0.0)


EXPONENTIALS_PER_CLOCK = 16.0
# Backward, kernels of their own multiply the result with its gradient (16 bits each), clear the sums of the queries'
# gradient in 32 bits, read them and write them in 16 bits: bytes for each element of the queries.
SUMS_BYTES = 2 + 2 + 4 + 4 + 2
WARP_SHARE: Mapping[str, float] = {"hopper": 0.63}
CUDNN = "cudnn_attention"
FLOPS_PER_COLUMN = {False: 4.0, True: 10.0}  # of a pair, forward and backward (Dao 2023, section 4.1)
# Not on matrix units, in blocks of 64 queries (xformers' kernels in torch: mem_eff_attention/kernel_forward.h).
LANES, LANES_BLOCK = "float32", 64
DTYPES = ("float16", "bfloat16", LANES)
_SDPA = "aten::_scaled_dot_product_"
FUSED = {
    "aten::scaled_dot_product_attention": False  # of an op table; in a trace, the op that it calls has the kernel
} | {
    f"{prefix}{suffix}": suffix.endswith("backward")
    for prefix, suffixes in (
        (_SDPA, [f"{kind}_attention{end}" for kind in ("flash", "efficient", "cudnn") for end in ("", "_backward")]),
        ("aten::_", [f"{kind}_attention_{end}" for kind in ("flash", "efficient") for end in ("forward", "backward")]),
    )
    for suffix in suffixes
}


def attentions_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of fused attention in 16 bits; NaN: another op or dtype, no matrix units for it, or lengths not known."""
    result = np.full(len(calls), np.nan)
    sizes = sized(calls, _sizes, 6)
    flash, cudnn = (np.array([kind in call.op_name for call in calls], dtype=bool) for kind in ("flash", "cudnn"))
    kinds = [(call.known_dtype, FUSED.get(call.op_name)) for call in calls]
    for dtype, backward in {k for k in kinds if k[0] in DTYPES and k[1] is not None}:
        key = dtype if dtype == LANES else rate_key(setting.device, dtype)
        if dtype != LANES and not key.endswith("_matrix"):
            continue
        same = np.array([k == (dtype, backward) for k in kinds])
        rows = np.intersect1d(known_rows(sizes), np.flatnonzero(same))
        batch, heads, queries, keys, head_dim = sizes[rows, :5].T
        block = LANES_BLOCK if dtype == LANES else BLOCK_QUERIES
        # A block works on all its positions; those beyond the end are masked.
        queries, keys = rounded_up(queries, block), rounded_up(keys, block)
        requested = Attentions(batch, heads, queries, keys, head_dim, sizes[rows, 5] > 0, flash[rows], cudnn[rows],
                               block)  # fmt: skip
        device = setting.device if dtype == LANES else as_specified(setting, dtype)
        result[rows] = fused_us(requested, ITEM_BYTES[dtype], device.flops_per_s[key], setting.device, setting.memory,
                               fused_rates(setting, dtype, bool(backward)), bool(backward))  # fmt: skip
    dropped = [call.op_name == _SDPA + CUDNN and call.num_kernels > 1 for call in calls]
    return result * np.where(dropped, setting.memory.attention["dropout_slowdown"], 1.0)


def fused_rates(setting: Setting, dtype: str, backward: bool) -> tuple[float, float]:
    """A fused kernel's share of the units' peak in full waves, and its softmax per pair as columns of a head."""
    if dtype == LANES:
        device, key, share = setting.device, dtype, setting.memory.attention["lanes_share"]
    else:
        device = as_specified(setting, dtype)
        key, share = rate_key(device, dtype), typical(setting.gemm["matrix"], "compute_share")
        share *= WARP_SHARE.get(device.architecture, 1.0)
        slower = backward and device.architecture in WARP_SHARE
        share *= setting.memory.attention["backward_share"] if slower else 1.0
    per_clock = device.flops_per_s[key] * share / (device.num_sms * device.clock_hz)  # of one SM
    columns = per_clock / EXPONENTIALS_PER_CLOCK / FLOPS_PER_COLUMN[backward]
    return share, columns


def _sizes(call: KernelCall) -> tuple[float, ...]:
    """Fields of Attentions; fewer FLOPs than all pairs take mean a causal mask."""
    if call.op_name not in FUSED or not call.flops > 0:
        raise UnknownCost
    parsed, backward = call.parsed(), FUSED[call.op_name]
    heads_first = "scaled_dot_product" in call.op_name
    q, k = (parsed.tensor(int(backward) + place).shape for place in (0, 1))
    if len(q) != 4 or len(k) != 4:
        raise UnknownCost
    length, heads = (-2, -3) if heads_first else (-3, -2)
    whole = tuple(map(float, (q[0], q[heads], q[length], k[length], q[-1])))
    full = flops(Attentions(*(np.array([v]) for v in (*whole, False))), backward)[0]
    return (*whole, float(call.flops < full * (1.0 - 1e-9)))
