"""The user's own op table gives collectives in the form of published tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gnnperf.analytic.collective.tables import link_name, read_calibrated
from gnnperf.core.errors import InputError
from gnnperf.record.calibrate.op_table import COLUMNS, parquet_bytes

ROW = {**dict.fromkeys(COLUMNS), "op": "all_reduce", "kind": "collective", "message_bytes": 1024.0, "ranks": "[0, 1]",
       "link": "lo", "device": "cpu", "latency_us": 70.0}  # fmt: skip


def test_own_collectives_are_read_and_other_rows_are_not(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    rows = [ROW, {**ROW, "op": "send", "link": "0.25g"}, {**ROW, "op": "aten::mm", "kind": "op", "ranks": None}]
    path.write_bytes(parquet_bytes(rows))
    result = read_calibrated(path).rows
    assert result[["kind", "message_bytes", "group_size", "nodes", "link", "latency_us"]].values.tolist() == [
        ["all_reduce", 1024.0, 2, 1, "loopback", 70.0],
        ["send_recv", 1024.0, 2, 2, "network", 70.0],
    ]


@pytest.mark.parametrize(
    ("measured", "kind"), [("NV18", "nvlink"), ("PIX", "pcie"), ("SYS", "pcie"), ("1g", "network")]
)
def test_links_by_their_measured_names(measured: str, kind: str) -> None:
    assert link_name(measured) == kind


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    pd.DataFrame({"op": ["all_reduce"]}).to_parquet(path)
    with pytest.raises(InputError, match="'kind' is missing"):
        read_calibrated(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_calibrated(tmp_path / "none.parquet")
