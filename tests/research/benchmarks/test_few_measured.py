"""A few measured rows correct the others, and one factor is judged next to them."""

import numpy as np
import pandas as pd
import pytest

from research.benchmarks.few_measured import MEASURED, errors


def test_what_all_rows_miss_is_corrected_by_a_factor_and_by_similar_rows() -> None:
    edges = np.arange(1, 601)
    part = pd.DataFrame({
        "shapes": [f"[[{e},{e}],[{e},{e}]]" for e in edges], "flops": 2.0 * edges**3, "moved_bytes": 12.0 * edges**2,
        "base_us": edges, "read_us": edges, "latency_us": 2 * edges,
    })  # fmt: skip
    (plain, *others), (*_, bias) = errors(part)
    corrected, scaled = others[: len(MEASURED)], others[len(MEASURED) :]
    assert plain == pytest.approx(0.5)  # half of what was measured
    assert scaled == pytest.approx([0.0] * len(MEASURED), abs=1e-9)
    assert 0.05 > corrected[0] > corrected[2] and abs(bias) < 0.05
