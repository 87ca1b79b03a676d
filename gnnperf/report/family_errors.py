"""How far predicted latencies are off, per op family, where they were measured."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.report.summary import work_table


def family_errors(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per family of which a node was both predicted and measured, most measured time first.

    Returns:
        Columns family, num_nodes, measured_us and predicted_us (sums over these nodes), sum_error (of the sums,
        signed), median_error and p90_error (of single nodes, absolute). Nodes measured as 0 us have no relative error
        and are left out.
    """
    work = work_table(nodes)
    work = work[(work["measured_us"] > 0) & work["predicted_us"].notna()]
    off = (work["predicted_us"] / work["measured_us"] - 1.0).abs()
    groups = work.assign(off=off).groupby("family", sort=False, dropna=False)
    result = groups[["measured_us", "predicted_us"]].sum()
    result["num_nodes"] = groups.size()
    result["sum_error"] = result["predicted_us"] / result["measured_us"] - 1.0
    result["median_error"] = groups["off"].median()
    result["p90_error"] = groups["off"].quantile(0.9) if len(work) else np.nan
    return result.sort_values("measured_us", ascending=False, kind="stable").reset_index()
