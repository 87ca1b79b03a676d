"""Rows of op tables by hand, shared by the tests."""

import pandas as pd

from research.tables.columns import OpTable, completed, dtypes_json, product_columns, shapes_json

A100, V100, T4 = "NVIDIA A100-PCIE-40GB", "Tesla V100-PCIE-32GB", "Tesla T4"
SIZES = [(64, 64, 64), (256, 256, 256), (1024, 512, 256), (2048, 2048, 2048), (4096, 1024, 512), (100, 1000, 10)]

ADDED = (1024.0, 4096.0, 16384.0)


def product_rows(devices: tuple[str, ...] = (A100, V100), *, launch: bool = True, us: float = 50.0) -> pd.DataFrame:
    """SIZES as float32 products on each device; each takes `us` more than the one before."""
    m, n, k = (list(edges) for edges in zip(*SIZES, strict=True))
    parts = [
        completed(
            {**product_columns("aten::linear", m, n, k, "float32"), "direction": "forward", "cache": "warm",
             "launch_included": launch, "device": device, "latency_us": [us * (i + 1) for i in range(len(SIZES))],
             "source": "toys", "table": "linear", "method": "by hand"}, len(SIZES),
        )
        for device in devices
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def add_rows() -> pd.DataFrame:
    """Additions in float32 of [1024, 256], and four and sixteen times as large, in 20, 40 and 160 us."""
    rows, elements = ADDED, [r * 256 for r in ADDED]
    return completed(
        {"op": "aten::add", "rows": list(rows), "columns": 256.0, "shapes": shapes_json([[rows, 256], [rows, 256]]),
         "dtypes": dtypes_json(["float32"] * 2), "flops": elements, "moved_bytes": [12 * e for e in elements],
         "dtype": "float32", "direction": "forward", "cache": "warm", "launch_included": True, "device": A100,
         "latency_us": (20.0, 40.0, 160.0), "source": "toys", "table": "add", "method": "by hand"}, len(rows),
    )  # fmt: skip


def convolution_rows(count: int = 1, **changes: object) -> pd.DataFrame:
    """8 images of 64 channels and 32 x 32 pixels, 3 x 3 windows to 64 channels."""
    sizes = {"batch": 8.0, "in_channels": 64.0, "out_channels": 64.0, "kernel": 3.0, "in_size": 32.0, "stride": 1.0,
             "padding": 1.0}  # fmt: skip
    how = {"op": "aten::conv2d", "dtype": "float32", "direction": "forward", "cache": "warm", "launch_included": True,
           "device": A100, "latency_us": 200.0, "source": "toys", "table": "conv", "method": "by hand",
           "shapes": "[[8, 64, 32, 32], [64, 64, 3, 3]]"}  # fmt: skip
    return completed({**sizes, **how, **changes}, count)


def table(*parts: pd.DataFrame) -> OpTable:
    """One table of these rows."""
    return OpTable(pd.concat(parts, ignore_index=True), {})
