"""What is measured: one op at one size, or one collective of one group. Plain values, so that they travel as JSON."""

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gnnperf.core import write_bytes
from gnnperf.hardware import Measured

Shape = tuple[int, ...]


class Direction(StrEnum):
    """Of an op: the call itself, or the gradient of all its floating inputs."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Cache(StrEnum):
    """What the last-level cache held when timing began: the call's own inputs, or something else."""

    WARM = "warm"
    FLUSHED = "flushed"


class _Point(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """Travels as JSON with the name of its class."""


class OpPoint(_Point, frozen=True):
    """One op at one size."""

    op: str  # as in traces, e.g. "aten::mm", or with its overload "aten::add.out"
    # one per tensor argument, in the order of the op's schema; None for an optional tensor left out
    shapes: tuple[Shape | None, ...]
    dtypes: tuple[str, ...]  # of these tensors
    # the other arguments, by name of the schema; what is left out takes the schema's default
    arguments: tuple[tuple[str, Any], ...] = ()
    direction: Direction = Direction.FORWARD  # forward, or the gradient
    # so many calls in turn, each with tensors of its own (tables compete for the cache); times are per call
    tables: int = 1
    skew: float = 1.0  # access of integer inputs: row = floor(rows u^skew), u uniform; 1 is uniform, larger is hotter
    tf32: bool = False  # products in float32 may use TF32
    # places of tensors that lie in memory column by column (the last two axes are exchanged)
    transposed: tuple[int, ...] = ()
    flops: float | None = None  # of one call; None unknown
    moved_bytes: float | None = None  # read and written at least; None unknown

    def __post_init__(self) -> None:
        """Lists that JSON made of tuples are tuples again."""
        msgspec.structs.force_setattr(self, "arguments", frozen(self.arguments))


class CommPoint(_Point, frozen=True):
    """One collective, or a send/receive, of one group."""

    op: str  # name of CollectiveKind
    num_bytes: int  # of one rank's input (all_gather: its own part; reduce_scatter: all parts)
    ranks: tuple[int, ...]  # ranks of the group, in the order of its members
    link: str  # what joins them: "lo", "0.25g", or a GPU topology's word ("NV18", "PIX")


class HostPoint(_Point, frozen=True):
    """A cost of the host that is no single op: see gnnperf.record.calibrate.job."""

    quantity: str


Point = OpPoint | CommPoint | HostPoint


@dataclass(frozen=True)
class Reading:
    """One point's median in one round."""

    point: Point  # what
    cache: Cache  # before each call
    launch_included: bool  # True: from the call to the end of its work, seen by the host; False: the device's own time
    latency_us: float  # median over the samples, of one call
    num_samples: int  # how many


def frozen(value: Any) -> Any:
    """Lists become tuples, at every depth."""
    return tuple(frozen(v) for v in value) if isinstance(value, list | tuple) else value


def write_readings(path: Path, readings: Sequence[Reading]) -> None:
    """As a JSON list."""
    write_bytes(path, msgspec.json.encode(readings))


def read_readings(path: Path) -> list[Reading]:
    """What `write_readings` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Reading])


def op_point(op: str, shapes: Sequence[Shape | None], dtype: str, **more: Any) -> OpPoint:
    """An OpPoint whose tensors all have one dtype."""
    return OpPoint(op, tuple(shapes), (dtype,) * len(shapes), **more)


# The interval in which another calibration of the same machine is expected to land.
#
# Each round is a process of its own (pages, code and heap lie elsewhere) and gives one median per point. Their
# spread, not the spread of samples inside a process, is what a second calibration will see. With y = log of the R
# medians:
#
#     center      exp(median(y))
#     sd          the standard deviation of y, at least the typical one of its kind: five rounds that happen to agree
#                 say little about one point, but hundreds of points say what rounds do to such points
#     half width  t(R - 1, 97.5 %) * sqrt(pi / 2) * sd * sqrt(2 / R)
#
# sqrt(pi / 2 / R) is the standard error of a median of R normal values over their sd; sqrt(2), because the other
# calibration's median errs as much as this one's. Steady drift that takes longer than one calibration is not in it.


# Student's t, two-sided 95 %, by degrees of freedom; between entries the next smaller holds (wider, so safe).
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
         12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}  # fmt: skip
MEDIAN_ERROR = math.sqrt(math.pi / 2)
K = TypeVar("K", bound=Hashable)
CLOCK_US = 0.05  # what two readings of the host's clock cost and resolve


def t_975(degrees: int) -> float:
    """Student's t at 97.5 %."""
    return T_975[max(d for d in T_975 if d <= max(degrees, 1))]


def log_sd(medians: Sequence[float]) -> float:
    """Standard deviation of the logarithms; NaN for fewer than two."""
    return statistics.stdev(map(math.log, medians)) if len(medians) > 1 else math.nan


def interval_of(medians: Sequence[float], least_log_sd: float = 0.0) -> Measured:
    """Over the positive medians [R] of R >= 2 rounds, whose spread is at least `least_log_sd`; see above."""
    if len(medians) < 2:
        raise ValueError(f"{len(medians)} round has no spread")
    center = math.exp(statistics.median(map(math.log, medians)))
    half = t_975(len(medians) - 1) * MEDIAN_ERROR * max(log_sd(medians), least_log_sd) * math.sqrt(2 / len(medians))
    return Measured(center, center * math.exp(-half), center * math.exp(half))


def widened(interval: Measured, by: float) -> Measured:
    """The interval with `by` (the clock's resolution, in the value's unit) on both sides; low stays positive."""
    return Measured(interval.value, max(interval.low - by, interval.low / 2), interval.high + by)


def intervals(medians: Mapping[K, Sequence[float]], kinds: Mapping[K, Hashable]) -> dict[K, Measured]:
    """Intervals of many points, us; each is at least as wide as is typical (median) of its kind."""
    spreads: dict[Hashable, list[float]] = defaultdict(list)
    for key, values in medians.items():
        spreads[kinds[key]].append(log_sd(values))
    typical = {kind: statistics.median(values) for kind, values in spreads.items()}
    return {key: widened(interval_of(values, typical[kinds[key]]), CLOCK_US) for key, values in medians.items()}
