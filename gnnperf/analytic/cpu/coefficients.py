"""OpPrices: what ops cost on a CPU, per family of ops, with what single ops and dtypes deviate by.

    price of a count = the family's x the op's factor x the dtype's factor (of traffic and arithmetic)

An op that was never seen pays its family's prices, a family that was never seen those of elementwise ops.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Annotated

import numpy as np
import pandas as pd
from msgspec import Meta

from gnnperf.analytic.constants_file import rounded
from gnnperf.analytic.cpu.counts import ARITHMETIC, CALLS, COUNTS, TRAFFIC, op_counts, paid_families
from gnnperf.core import InputError, OpFamily, require
from gnnperf.hardware import DeviceSpec

DIGITS = 4  # significant, in a file
Price = Annotated[float, Meta(ge=0.0, le=1e18)]  # FLOP/s included
BACK_OFF = str(OpFamily.ELEMENTWISE)


@dataclass(frozen=True)
class FamilyCoefficients:
    """One family's."""

    price_us: Mapping[str, Price]  # count (counts.COUNTS) -> us of one; a count that is not named costs nothing
    op_factor: Mapping[str, Mapping[str, Price]]  # op -> count -> factor
    dtype_factor: Mapping[str, Price]  # dtype -> factor of every count but calls

    def __post_init__(self) -> None:
        for count in chain(self.price_us, *self.op_factor.values()):
            require(count in COUNTS, "count", count, ", ".join(COUNTS))

    def of(self, op: str, dtype: str) -> np.ndarray:
        """[len(COUNTS)] us of one count each."""
        own, wide = self.op_factor.get(op, {}), self.dtype_factor.get(dtype, 1.0)
        return np.array([self.price_us.get(count, 0.0) * own.get(count, 1.0) * (1.0 if count in CALLS else wide)
                         for count in COUNTS])  # fmt: skip


@dataclass(frozen=True)
class CoreNumbers:
    """What prices are moved to another processor by, of one core: FLOP/s in float32, memory bandwidth, clock."""

    flops_per_s: Price
    bandwidth_bytes_per_s: Price
    clock_hz: Price


@dataclass(frozen=True)
class OpCoefficients:
    """Prices on one processor."""

    families: Mapping[str, FamilyCoefficients]  # OpFamily -> prices
    core: CoreNumbers  # of that processor

    def __post_init__(self) -> None:
        if BACK_OFF not in self.families:
            raise InputError(f"has no prices of the family {BACK_OFF!r}", where="families")

    def to_plain(self) -> dict[str, object]:
        """Names and numbers only, for a file."""
        families = {name: rounded(asdict(family), DIGITS) for name, family in self.families.items()}
        return {"core": asdict(self.core), "families": families}

    def latency_us(self, calls: pd.DataFrame, device: DeviceSpec) -> np.ndarray:
        """[n] us of calls (counts.KEYS) on a CPU; NaN where neither FLOPs nor bytes are known."""
        return np.asarray(self.terms_us(calls, device).sum(axis=1))

    def terms_us(self, calls: pd.DataFrame, device: DeviceSpec) -> np.ndarray:
        """[n, len(COUNTS)] us that each count takes; they add up to `latency_us`."""
        counts = op_counts(calls)  # [n, num_counts]
        names = calls[["family", "op_name", "dtype"]].assign(family=paid_families(calls)).astype(object)
        code, distinct = pd.factorize(pd.MultiIndex.from_frame(names.where(names.notna(), "")))
        coefficients = np.array([self._coefficients(*map(str, key)) for key in distinct]).reshape(-1, len(COUNTS))
        return counts * coefficients[code] * self.moved_to(device)

    def moved_to(self, device: DeviceSpec) -> np.ndarray:
        """[len(COUNTS)] factors of prices: arithmetic by FLOP rate, traffic by bandwidth, calls by clock, per core."""
        there = core_numbers(device)
        factor = {
            **dict.fromkeys(ARITHMETIC, self.core.flops_per_s / there.flops_per_s),
            **dict.fromkeys(TRAFFIC, self.core.bandwidth_bytes_per_s / there.bandwidth_bytes_per_s),
            **dict.fromkeys(CALLS, self.core.clock_hz / there.clock_hz),
        }
        return np.array([factor[count] for count in COUNTS])

    def _coefficients(self, family: str, op: str, dtype: str) -> np.ndarray:
        own = self.families.get(family)
        return own.of(op, dtype) if own is not None else self.families[BACK_OFF].of("", dtype)


def core_numbers(device: DeviceSpec) -> CoreNumbers:
    """Of one core of a CPU."""
    flops_per_s, bytes_per_s = device.flops_per_s["float32"], device.memory_bandwidth_bytes_per_s
    return CoreNumbers(flops_per_s / device.num_sms, bytes_per_s / device.num_sms, device.clock_hz)
