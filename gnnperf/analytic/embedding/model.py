"""Embedding bags, forward and backward: rows looked up, what the caches hold of them, gradients of whole tables.

Time of one call = sum over counts of count x price (`LookupCosts`):

    forward          calls, looked-up rows and elements, lines that come from the last-level cache or from DRAM, results
    backward, dense  also the gradient of the whole table: every row, and a counter per row

Which rows come from where follows from the access distribution (`Access`): different rows per call, and Che's
approximation of what a cache of a given size keeps. A warm call finds what the call before it left; tables that are
looked up in turn share the caches.
"""

from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, cache_bytes, cache_bytes_per_s, miss_share, sustained_bytes_per_s
from gnnperf.hardware import DeviceSpec

# Rows are described in bins of equally likely rows, so that a table of a billion rows is a few hundred numbers. Lookups
# are independent of each other (the independent reference model); real ones that come in bursts hit more often.

SINGLE_ROWS, NUM_BINS = 32, 160  # the hottest rows stand by themselves, the rest are in bins of equal ratio
BISECTIONS = 40
LOG_LARGEST = 60.0  # a characteristic time of e^60 lookups is for ever


@dataclass(frozen=True)
class Access:
    """Where lookups fall, for k tables."""

    rows: np.ndarray  # [k, bins] rows in each bin, not always whole
    probability: np.ndarray  # [k, bins] that one lookup falls on one given row of the bin; rows x probability sums to 1

    def unique(self, lookups: np.ndarray) -> np.ndarray:
        """Expected different rows [k] among `lookups` [k]: sum of 1 - (1 - p)^n over rows."""
        never = np.exp(lookups[:, None] * np.log1p(-np.minimum(self.probability, 1.0 - 1e-12)))  # [k, bins]
        return (self.rows * (1.0 - never)).sum(axis=1)

    def missed(self, lookups: np.ndarray, cache_rows: np.ndarray) -> np.ndarray:
        """Lookups [k] that miss a cache that was empty before `lookups` [k] of them.

        Until the cache is full, after T lookups, only the first lookup of a row misses; then it is a warm cache.
        """
        filling = np.minimum(lookups, self.retained_lookups(cache_rows))
        return self.unique(filling) + (lookups - filling) * (1.0 - self.hit_share(cache_rows))

    def hit_share(self, cache_rows: np.ndarray) -> np.ndarray:
        """Share [k] of lookups that hit a warm cache of `cache_rows` [k] (Che, Tung, Wang 2002)."""
        retained = np.minimum(self.retained_lookups(cache_rows), 1e30)[:, None]  # [k, 1]
        return 1.0 - (self.rows * self.probability * np.exp(-self.probability * retained)).sum(axis=1)

    def retained_lookups(self, cache_rows: np.ndarray) -> np.ndarray:
        """Lookups T [k] after which a row leaves a least-recently-used cache of `cache_rows` [k].

        The T at which T lookups touch as many rows as fit: sum of 1 - exp(-p T) = cache_rows (Che, Tung, Wang
        2002). Infinite where all rows that are ever looked up fit.
        """
        low, high = np.full(len(cache_rows), -5.0), np.full(len(cache_rows), LOG_LARGEST)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            touched = (self.rows * -np.expm1(-self.probability * np.exp(middle)[:, None])).sum(axis=1)
            fits = touched <= cache_rows
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        touchable = (self.rows * (self.probability > 0)).sum(axis=1)
        return np.where(touchable <= cache_rows, np.inf, np.exp(low))


def power_access(num_rows: np.ndarray, skew: np.ndarray) -> Access:
    """Row = floor(num_rows u^skew) with u uniform: the first share x of the rows gets x^(1 / skew) of the lookups."""
    edges = _edges(num_rows)  # [k, bins + 1]
    share = (edges / num_rows[:, None]) ** (1.0 / skew[:, None])  # [k, bins + 1]
    return _binned(np.diff(edges, axis=1), np.diff(share, axis=1))


def zipf_access(num_rows: np.ndarray, exponent: np.ndarray) -> Access:
    """The i-th hottest row is looked up in proportion to i^-exponent (Breslau et al. 1999)."""
    edges = _edges(num_rows)  # [k, bins + 1]
    middle = (edges[:, :-1] + edges[:, 1:] + 1.0) / 2  # [k, bins]
    rows = np.diff(edges, axis=1)
    weight = rows * middle ** -exponent[:, None]
    return _binned(rows, weight / weight.sum(axis=1, keepdims=True))


def _edges(num_rows: np.ndarray) -> np.ndarray:
    single = np.minimum(np.arange(SINGLE_ROWS + 1.0)[None, :], num_rows[:, None])
    steps = np.linspace(0.0, 1.0, NUM_BINS - SINGLE_ROWS + 1)[1:]  # [bins]
    ratio = np.maximum(num_rows[:, None] / SINGLE_ROWS, 1.0)
    rest = np.minimum(SINGLE_ROWS * ratio**steps, num_rows[:, None])
    return np.concatenate([single, rest], axis=1)


def _binned(rows: np.ndarray, share: np.ndarray) -> Access:
    return Access(rows, np.where(rows > 0, share / np.where(rows > 0, rows, 1.0), 0.0))


INDEX_BYTES = 8
SECTOR_BYTES = 32  # of a cache line (NVIDIA)
L1_BYTES_PER_SM = 2.0**17  # what most devices have at least
COUNTER_BYTES = 8  # per row of the table: ATen counts the lookups of each row in dense backward (EmbeddingBag.cpp)


@dataclass(frozen=True)
class Lookups:
    """k calls of an embedding bag."""

    rows: np.ndarray  # [k] of the table
    dim: np.ndarray  # [k] columns
    lookups: np.ndarray  # [k] rows looked up in one call
    bags: np.ndarray  # [k] rows of the result; lookups / bags is the pooling factor
    skew: np.ndarray  # [k] of the access: row = floor(rows u^skew)
    tables: np.ndarray  # [k] tables looked up in turn, each as large
    warm: np.ndarray  # [k] bool: the same call came before; else the caches hold something else
    item_bytes: int = 4  # of an element
    counted: Access | None = None  # how often rows were requested again, where that is known; None: by `skew`

    @property
    def reuse(self) -> Access:
        """As counted, else by the skew."""
        return self.counted or power_access(self.rows, self.skew)

    @property
    def row_bytes(self) -> np.ndarray:
        """[k]."""
        return self.dim * float(self.item_bytes)

    @property
    def gradient_bytes(self) -> np.ndarray:
        """[k] written by a dense backward."""
        return self.rows * (self.row_bytes + COUNTER_BYTES)


@dataclass(frozen=True)
class LookupCosts:
    """Prices of a GPU, us each, and its caches.

    Lines cost their bytes over the bandwidth of where they come from, an element one operation (Lin et al. 2022 model
    an embedding lookup by its traffic through the last-level cache and DRAM as well). Latencies count as overlapped,
    so this is a lower bound for few lookups.
    """

    call: float  # one call on one table
    element: float  # one element of a looked-up row
    near_line: float  # one line that the near cache does not hold
    last_line: float  # one line that the last-level cache does not hold
    near_bytes: float  # the SMs' own caches together
    last_bytes: float  # the last-level cache, as much of it as a program gets
    line_bytes: int = SECTOR_BYTES  # what is moved at least

    @property
    def byte(self) -> float:
        """One byte of indices, results and gradients, which are in no cache."""
        return self.last_line / self.line_bytes


def lookup_costs(device: DeviceSpec, constants: MemoryConstants) -> LookupCosts:
    """By the device's bandwidths and rate."""
    return LookupCosts(
        call=device.launch_floor_us, element=US / device.flops_per_s["float32"],
        near_line=SECTOR_BYTES * US / cache_bytes_per_s(device, constants),
        last_line=SECTOR_BYTES * US / sustained_bytes_per_s(device, constants),
        near_bytes=L1_BYTES_PER_SM * device.num_sms, last_bytes=cache_bytes(device, constants),
    )  # fmt: skip


def lookup_us(calls: Lookups, costs: LookupCosts, dense_backward: bool = False) -> np.ndarray:
    """Time [k] us of one call on one table: the sum over counts of count x price."""
    lines = np.maximum(calls.row_bytes / costs.line_bytes, 1.0)  # [k] of a row; parts of lines belong to neighbors
    near, last = (missing_rows(calls, size, costs.line_bytes, dense_backward) * lines
                  for size in (costs.near_bytes, costs.last_bytes))  # fmt: skip
    streamed = calls.lookups * INDEX_BYTES + calls.bags * calls.row_bytes  # [k] bytes
    streamed = streamed + (calls.gradient_bytes if dense_backward else 0.0)
    issued = costs.call + calls.lookups * calls.dim * costs.element  # [k] us
    return issued + streamed * costs.byte + near * costs.near_line + last * costs.last_line


def missing_rows(calls: Lookups, cache_bytes: float, line_bytes: int, dense_backward: bool = False) -> np.ndarray:
    """Lookups [k] of one call that a cache of `cache_bytes` does not hold.

    From an empty cache: `Access.missed`. A warm one still holds what it held, as far as all that is touched
    between two calls on the same table fits: the different rows, results and indices of all tables, and the gradients
    where they are written.
    """
    reuse = calls.reuse
    held_row_bytes = np.maximum(calls.row_bytes, float(line_bytes))  # [k]
    cold = reuse.missed(calls.lookups, cache_bytes / held_row_bytes)  # [k]
    touched = reuse.unique(calls.lookups) * held_row_bytes + calls.bags * calls.row_bytes  # [k]
    touched = touched + calls.lookups * INDEX_BYTES + (calls.gradient_bytes if dense_backward else 0.0)
    return np.where(calls.warm, cold * miss_share(calls.tables * touched, cache_bytes), cold)
