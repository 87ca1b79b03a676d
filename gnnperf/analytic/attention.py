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
  FlashAttention-3, section 1, makes the same count). It is computed again backward;
- in float32, from Ampere on, a product is three of TF32 (CUTLASS's OpMultiplyAddFastF32, in xformers' kernels of torch:
  gemm_kernel_utils.h), whose operands an SM splits at a rate of its own, whatever its units. That rate is fitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gnnperf.analytic.gemm.calls import as_specified
from gnnperf.analytic.gemm.constants import typical
from gnnperf.analytic.gemm.model import ITEM_BYTES, rate_key
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, rounded_up, sized
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import DEFAULT_LANES_PER_SM, stream_us, traffic_us
from gnnperf.graph import UnknownCost
from gnnperf.hardware import DeviceSpec

FORWARD_PRODUCTS, FUSED_BACKWARD_PRODUCTS = 2, 5  # Dao 2023, section 4.1: 4 and 10 FLOPs per pair and column
BLOCK_QUERIES, FLOAT32_BLOCK = 128, 64  # Dao 2023, kernel_forward.h (xformers); backward blocks hold as many keys
# flash_attn 2 has a kernel for each 32 columns of a head. In kernel_forward.h, scores sum over steps of 32 columns, and
# results have tiles of 64 columns, or 128 of wider heads.
HEAD_STEP, FLOAT32_TILE = 32, 64
# Of cuDNN on H200 (datasets/h200): two blocks at a time on a causal mask's diagonal, and no kernel for narrower heads.
CUDNN_DIAGONAL, CUDNN_WIDTH = 2 * BLOCK_QUERIES, 64.0


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
    float32: bool = field(default=False, kw_only=True)

    @property
    def block(self) -> int:
        """Queries of a block."""
        return FLOAT32_BLOCK if self.float32 else BLOCK_QUERIES

    @property
    def columns(self) -> np.ndarray:
        """Columns [calls] of a head that a kernel multiplies, in the mean over products for scores and for results."""
        padded = rounded_up(self.head_dim, HEAD_STEP)  # [calls]
        if not self.float32:
            return np.maximum(padded, np.where(self.cudnn, CUDNN_WIDTH, 0.0))
        tile = np.where(self.head_dim > FLOAT32_TILE, 2 * FLOAT32_TILE, FLOAT32_TILE)  # [calls]
        return (padded + np.ceil(self.head_dim / tile) * tile) / 2

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
    calls: Attentions, item_bytes: float, device: DeviceSpec, constants: MemoryConstants, rates: tuple[float, float],
    backward: bool = False,
) -> np.ndarray:  # fmt: skip
    """Device time [calls] us of a fused kernel: the longer of waves of blocks and bytes."""
    flops_per_s, pair_columns = rates
    along = calls.keys if backward else calls.queries
    blocks = calls.batch * calls.heads * np.ceil(along / calls.block)  # [calls]
    idle = np.ceil(blocks / device.num_sms) * device.num_sms / np.maximum(blocks, 1.0)  # [calls] from 1 up
    work = flops(calls, backward) * calls.computed_pairs / calls.pairs  # [calls]
    work *= (calls.columns + pair_columns) / calls.head_dim * idle
    compute = work / flops_per_s * 1e6 + device.launch_floor_us  # [calls]
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
FLOAT32, TF32_PRODUCTS, FLOAT32_LANES = "float32", 3.0, 128  # lanes of an SM of Hopper, where the rate is fitted
DTYPES = ("float16", "bfloat16", FLOAT32)
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
    """[n] us of fused attention; NaN: another op or dtype, no matrix units for 16 bits, or lengths not known."""
    result = np.full(len(calls), np.nan)
    sizes = sized(calls, _sizes, 6)
    flash, cudnn = (np.array([kind in call.op_name for call in calls], dtype=bool) for kind in ("flash", "cudnn"))
    kinds = [(call.known_dtype, FUSED.get(call.op_name)) for call in calls]
    for dtype, backward in {k for k in kinds if k[0] in DTYPES and k[1] is not None}:
        if dtype != FLOAT32 and not rate_key(setting.device, dtype).endswith("_matrix"):
            continue
        same = np.array([k == (dtype, backward) for k in kinds])
        rows = np.intersect1d(known_rows(sizes), np.flatnonzero(same))
        batch, heads, queries, keys, head_dim = sizes[rows, :5].T
        requested = Attentions(batch, heads, queries, keys, head_dim, sizes[rows, 5] > 0, flash[rows], cudnn[rows],
                               float32=dtype == FLOAT32)  # fmt: skip
        # A block works on all its positions; those beyond the end are masked.
        requested = replace(requested, queries=rounded_up(queries, requested.block),
                            keys=rounded_up(keys, requested.block))  # fmt: skip
        result[rows] = fused_us(requested, ITEM_BYTES[dtype], setting.device, setting.memory,
                               fused_rates(setting, dtype, bool(backward)), bool(backward))  # fmt: skip
    dropped = [call.op_name == _SDPA + CUDNN and call.num_kernels > 1 for call in calls]
    return result * np.where(dropped, setting.memory.attention["dropout_slowdown"], 1.0)


def fused_rates(setting: Setting, dtype: str, backward: bool) -> tuple[float, float]:
    """FLOP/s of a fused kernel in full waves, and its softmax per pair as columns of a head."""
    split, memory = dtype == FLOAT32, setting.memory.attention
    device, key = as_specified(setting, dtype, split), rate_key(setting.device, dtype, split)
    matrix = key.endswith("_matrix")
    rate = device.flops_per_s[key] * typical(setting.gemm["matrix" if matrix else "vector"], "compute_share")
    if split:  # without units of TF32, lanes reach the same share of those of an SM with units
        lanes = FLOAT32_LANES if matrix else device.lanes_per_sm or DEFAULT_LANES_PER_SM
        issued = memory["float32_flops_per_clock"] * lanes / FLOAT32_LANES * device.num_sms * device.clock_hz
        rate = min(rate / (TF32_PRODUCTS if matrix else 1.0), issued)
    else:
        rate *= WARP_SHARE.get(device.architecture or "", 1.0)
        rate *= memory["backward_share"] if backward and device.architecture in WARP_SHARE else 1.0
    per_clock = rate / (device.num_sms * device.clock_hz)  # of one SM
    return rate, per_clock / EXPONENTIALS_PER_CLOCK / FLOPS_PER_COLUMN[backward]


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
