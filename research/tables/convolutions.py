"""Columns of convolutions, whatever table they stand in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from research.tables.columns import ITEM_BYTES
from research.tables.shapes import dtypes_json, shapes_json

OP = "aten::conv2d"


def convolution_columns(size: Mapping[str, np.ndarray], dtype: str) -> dict[str, object]:
    """Columns of convolutions: square images, square windows, NCHW, one group.

    out = floor((in + 2 padding - kernel) / stride) + 1 (torch.nn.Conv2d).

    Args:
        size: batch, in_channels, out_channels, kernel, in_size, stride, padding: [n] each.
        dtype: of image, weight and result.
    """
    window = size["kernel"]
    out_size = np.floor((size["in_size"] + 2 * size["padding"] - window) / size["stride"]) + 1  # [n]
    image = [size["batch"], size["in_channels"], size["in_size"], size["in_size"]]
    weight = [size["out_channels"], size["in_channels"], window, window]
    result = size["batch"] * size["out_channels"] * out_size**2  # [n] elements
    elements = np.prod(image, axis=0) + np.prod(weight, axis=0) + result  # [n]
    return {
        **size, "op": OP, "dtype": dtype, "shapes": shapes_json([image, weight]), "dtypes": dtypes_json([dtype, dtype]),
        "flops": 2.0 * result * size["in_channels"] * window**2, "moved_bytes": elements * ITEM_BYTES[dtype],
    }  # fmt: skip
