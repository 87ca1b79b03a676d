"""Fused attention: sizes from shapes and FLOPs, rates from what is published about the kernels.

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

import numpy as np

from gnnperf.analytic.attention.model import BLOCK_QUERIES, Attentions, FusedRates, flops, fused_us
from gnnperf.analytic.gemm.calls import as_specified
from gnnperf.analytic.gemm.constants import typical
from gnnperf.analytic.gemm.sizes import ITEM_BYTES, rate_key
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, sized
from gnnperf.graph import UnknownCost

EXPONENTIALS_PER_CLOCK = 16.0
WARP_SHARE: Mapping[str, float] = {"hopper": 0.63}
FLOPS_PER_COLUMN = {False: 4.0, True: 10.0}  # of a pair, forward and backward (Dao 2023, section 4.1)
DTYPES = ("float16", "bfloat16")  # fused kernels in float32 use neither the full rate of TF32 nor that of the lanes
_SDPA = "aten::_scaled_dot_product_"
FUSED = {
    "aten::scaled_dot_product_attention": False,  # of an op table; in a trace, the op that it calls has the kernel
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
    found = np.full(len(calls), np.nan)
    sizes = sized(calls, _sizes, 6)
    kinds = [(call.known_dtype, FUSED.get(call.op_name)) for call in calls]
    for dtype, backward in {k for k in kinds if k[0] in DTYPES and k[1] is not None}:
        key = rate_key(setting.device, dtype)
        if not key.endswith("_matrix"):
            continue
        same = np.array([k == (dtype, backward) for k in kinds])
        rows = np.intersect1d(known_rows(sizes), np.flatnonzero(same))
        batch, heads, queries, keys, head_dim = sizes[rows, :5].T
        asked = Attentions(batch, heads, _whole(queries), _whole(keys), head_dim, sizes[rows, 5] > 0)
        device = as_specified(setting, dtype)
        found[rows] = fused_us(asked, ITEM_BYTES[dtype], device.flops_per_s[key], setting.device, setting.memory,
                               fused_rates(setting, dtype, bool(backward)), bool(backward))  # fmt: skip
    return found


def _whole(positions: Array) -> Array:
    """[n] positions of whole blocks: a block works on all its positions, those beyond the end are masked."""
    return np.ceil(positions / BLOCK_QUERIES) * BLOCK_QUERIES


def fused_rates(setting: Setting, dtype: str, backward: bool) -> FusedRates:
    """What a fused kernel reaches on the setting's device; see the module."""
    device = as_specified(setting, dtype)
    share = typical(setting.gemm["matrix"], "compute_share") * WARP_SHARE.get(device.architecture, 1.0)
    per_clock = device.flops_per_s[rate_key(device, dtype)] * share / (device.num_sms * device.clock_hz)  # of one SM
    columns = per_clock / EXPONENTIALS_PER_CLOCK / FLOPS_PER_COLUMN[backward]
    return FusedRates(share, columns, uneven_share=1.0, wide_share=1.0, blocks_per_sm=1.0, start_us=0.0)


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
