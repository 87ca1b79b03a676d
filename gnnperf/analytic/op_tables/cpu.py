"""Op calls on a CPU: the shipped prices, and what a call pays most for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gnnperf.analytic.constants import default_constants
from gnnperf.analytic.cpu_ops.counts import ARITHMETIC, CALLS, COUNTS, KEYS, TRAFFIC
from gnnperf.analytic.cpu_ops.warmth import AT_ONCE
from gnnperf.analytic.kernels import Bound, KernelCall, KernelTimes
from gnnperf.hardware.spec import DeviceSpec

PAID_FOR: Mapping[Bound, tuple[str, ...]] = {Bound.LAUNCH: CALLS, Bound.MEMORY: TRAFFIC, Bound.COMPUTE: ARITHMETIC}


def op_times(calls: Sequence[KernelCall], device: DeviceSpec) -> KernelTimes:
    """Latencies of calls on one CPU; NaN and no bound where neither FLOPs nor bytes are known.

    Args:
        calls: [n].
        device: a CPU.
    """
    prices = default_constants("cpu").op_prices
    assert prices is not None, "conf/analytic/cpu.yaml holds prices"
    rows = [(c.op_name, c.input_dims, c.dtype, str(c.family), c.flops, c.moved_bytes, AT_ONCE) for c in calls]
    terms = prices.terms_us(pd.DataFrame(rows, columns=KEYS), device)  # [n, num_counts]
    latency = terms.sum(axis=1)  # [n] us
    sums = [terms[:, [COUNTS.index(name) for name in names]].sum(axis=1) for names in PAID_FOR.values()]
    bound = np.array(list(PAID_FOR), dtype=object)[np.argmax(np.nan_to_num(np.stack(sums)), axis=0)]  # [n]
    bound[np.isnan(latency)] = None
    return KernelTimes(latency, bound, ~np.isnan(latency))
