"""Convolutions by hand, and prices of products that are sums done in the head."""

import numpy as np

from gnnperf.analytic.convolution.model import Convolutions, result_edge
from gnnperf.analytic.gemm.model import SPLITS, Products, Splits


def convolution(images: float = 2, channels: float = 4, out: float = 8, size: float = 10, window: float = 3,
                stride: float = 1, padding: float = 1, groups: float = 1) -> Convolutions:  # fmt: skip
    edge = float(result_edge(*(np.array([float(v)]) for v in (size, window, stride, padding)))[0])
    sizes = (images, channels, out, size, size, window, window, edge, edge, stride, groups)
    return Convolutions(*(np.array([float(v)]) for v in sizes))


def sizes(result: Products) -> tuple[float, ...]:
    return tuple(float(v[0]) for v in (result.batch, result.m, result.n, result.k))


def flops_us(result: Products, splits: Splits = SPLITS) -> np.ndarray:
    return result.batch * result.m * result.n * result.k  # as if a multiply-add took a microsecond
