"""Whether two calibrations agree: each one's values within the other's stated intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnperf.core import InputError
from gnnperf.record.calibrate.ops_file import COLUMNS, read_table
from gnnperf.record.calibrate.point import Interval

OPS_FILE = "ops.parquet"
NOT_WHAT = ("latency_us", "latency_low_us", "latency_high_us", "num_rounds", "num_samples", "device", "torch_version",
            "cuda_version", "driver_version")  # fmt: skip
WHAT = tuple(name for name in COLUMNS if name not in NOT_WHAT)

Key = tuple[object, ...]


@dataclass(frozen=True)
class Pair:
    """One quantity in two calibrations, us."""

    key: Key
    kind: str
    first: Interval
    second: Interval

    @property
    def agrees(self) -> bool:
        """Both values lie within the other's interval."""
        return self.first.holds(self.second.value) and self.second.holds(self.first.value)

    @property
    def change(self) -> float:
        """Relative, of the value."""
        return self.second.value / self.first.value - 1


@dataclass(frozen=True)
class Agreement:
    """Of the pairs of one kind.

    Attributes:
        num_pairs: quantities in both.
        share: of them, agreeing.
        first_in_second: of them, the first's value in the second's interval.
        second_in_first: ... and the reverse.
        median_change: median absolute relative change.
        median_half_width: median relative half width of the intervals.
    """

    num_pairs: int
    share: float
    first_in_second: float
    second_in_first: float
    median_change: float
    median_half_width: float


def pairs(first: Path, second: Path) -> list[Pair]:
    """Quantities that both calibrations have."""
    a, b = _table(first), _table(second)
    shared = [key for key in a if key in b]
    if not shared:
        raise InputError("share no measured op", where=f"{first} and {second}")
    return [Pair(key, f"{a[key]['kind']}, {a[key]['cache']}", _interval(a[key]), _interval(b[key])) for key in shared]


def agreement(result: Iterable[Pair]) -> dict[str, Agreement]:
    """Per kind, and for "all"."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in result:
        groups[pair.kind].append(pair)
        groups["all"].append(pair)
    return {kind: _agreement(groups[kind]) for kind in sorted(groups)}


def _agreement(result: list[Pair]) -> Agreement:
    n = len(result)
    widths = sorted((i.high - i.low) / 2 / i.value for pair in result for i in (pair.first, pair.second))
    changes = sorted(abs(pair.change) for pair in result)
    return Agreement(
        n,
        sum(pair.agrees for pair in result) / n,
        sum(pair.second.holds(pair.first.value) for pair in result) / n,
        sum(pair.first.holds(pair.second.value) for pair in result) / n,
        changes[n // 2],
        widths[n],
    )


def _table(folder: Path) -> dict[Key, dict[str, object]]:
    path = folder / OPS_FILE if folder.is_dir() else folder
    try:
        result = read_table(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"is no calibration ({error})", where=str(path),
                         allowed=f"a folder that `gnnperf calibrate` wrote, or its {OPS_FILE}") from None  # fmt: skip
    return {tuple(row[name] for name in WHAT): row for row in result}


def _interval(row: Mapping[str, object]) -> Interval:
    value, low, high = (float(str(row[name])) for name in ("latency_us", "latency_low_us", "latency_high_us"))
    return Interval(value, low, high)
