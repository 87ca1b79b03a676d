"""Whether two calibrations agree: each one's values within the other's stated intervals."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.core import InputError
from gnnperf.record.calibrate.ops_file import COLUMNS

OPS_FILE = "ops.parquet"
VALUES = ("latency_us", "latency_low_us", "latency_high_us")
NOT_WHAT = (*VALUES, "num_rounds", "num_samples", "device", "torch_version", "cuda_version", "driver_version")
WHAT = [name for name in COLUMNS if name not in NOT_WHAT]


def agreement(first: Path, second: Path) -> pd.DataFrame:
    """A row per kind of the quantities that both calibrations have, and one for "all".

    Returns:
        num_pairs: quantities in both. agree, first_in_second, second_in_first: share whose values lie within both
        intervals, or within one. median_change, median_half_width: relative, of the values and of the intervals.

    Raises:
        InputError: no calibration, or none of the same quantity.
    """
    both = _table(first).merge(_table(second), on=WHAT, suffixes=("_a", "_b"))
    if both.empty:
        raise InputError("share no measured op", where=f"{first} and {second}")
    (a, a_low, a_high), (b, b_low, b_high) = ([both[f"{name}_{side}"] for name in VALUES] for side in "ab")
    pairs = pd.DataFrame({
        "kind": both["kind"] + ", " + both["cache"], "first_in_second": a.between(b_low, b_high),
        "second_in_first": b.between(a_low, a_high), "change": (b / a - 1).abs(),
        "width_a": (a_high - a_low) / 2 / a, "width_b": (b_high - b_low) / 2 / b,
    })  # fmt: skip
    groups = pd.concat([pairs, pairs.assign(kind="all")]).groupby("kind")
    return pd.DataFrame([{"kind": kind, **_summary(group)} for kind, group in groups]).set_index("kind")


def _summary(group: pd.DataFrame) -> dict[str, float]:
    return {
        "num_pairs": len(group),
        "agree": (group["first_in_second"] & group["second_in_first"]).mean(),
        "first_in_second": group["first_in_second"].mean(),
        "second_in_first": group["second_in_first"].mean(),
        "median_change": group["change"].quantile(interpolation="higher"),
        "median_half_width": pd.concat([group["width_a"], group["width_b"]]).quantile(interpolation="higher"),
    }


def _table(folder: Path) -> pd.DataFrame:
    path = folder / OPS_FILE if folder.is_dir() else folder
    try:
        table = pq.read_table(pa.BufferReader(path.read_bytes())).select([*COLUMNS])
        return table.to_pandas(types_mapper=pd.ArrowDtype).drop_duplicates(WHAT)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"is no calibration ({error})", where=str(path),
                         allowed=f"a folder that `gnnperf calibrate` wrote, or its {OPS_FILE}") from None  # fmt: skip
