"""Shares of peaks come back from times that were made of them."""

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.roofline import OTHERS, FamilyShares
from research.fitting.cdna import answered_us, fitted

RATE, BANDWIDTH = 1e15, 5e12


def rows_of(kind: str, shares: FamilyShares, count: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    flops, moved = 10 ** rng.uniform(8, 13, count), 10 ** rng.uniform(4, 9, count)
    rows = pd.DataFrame({"kind": kind, "flops": flops, "bytes": moved})
    rows = rows.assign(rate=RATE, bandwidth=BANDWIDTH, kernels=1.0, number=1.0)
    return rows.assign(measured_us=answered_us(rows, shares))


def test_shares_are_found_per_kind_and_rare_kinds_together() -> None:
    conv, copies = FamilyShares(0.25, 0.3, 6.0), FamilyShares(0.5, 0.7, 4.0)
    rare = rows_of("loss", copies, 2).assign(measured_us=5.0, flops=1.0, bytes=1.0)
    result = fitted(pd.concat([rows_of("conv", conv), rows_of("copy", copies), rare], ignore_index=True))
    assert set(result) == {"conv", "copy", OTHERS}
    for kind, known in (("conv", conv), ("copy", copies)):
        assert result[kind].compute_share == pytest.approx(known.compute_share, rel=0.05)
    assert result[OTHERS].start_us == pytest.approx(5.0, rel=0.1)


def test_what_a_kind_does_not_show_is_what_gemms_and_copies_reach() -> None:
    gemm, copies = FamilyShares(0.3, 0.3, 5.0), FamilyShares(0.5, 0.8, 5.0)
    short = rows_of("pooling", copies, 4).assign(flops=1.0, bytes=1.0, number=1e3, measured_us=5.0)
    rows = pd.concat([rows_of("gemm", gemm), rows_of("copy", copies), short], ignore_index=True)
    own = fitted(rows)["pooling"]
    assert own.compute_share == pytest.approx(fitted(rows)["gemm"].compute_share, rel=1e-3)
    assert own.bandwidth_share == pytest.approx(fitted(rows)["copy"].bandwidth_share, rel=1e-3)
