"""Gemms of linear layers whose shapes were not recorded: sizes from the tiles that forward and backward launched.

    forward           y  [M, N] = x  [M, K]  W [K, N]    tn    result N x M
    input gradient    dx [M, K] = dy [M, N] W' [N, K]    nn    result K x M
    weight gradient   dW [N, K] = dy'[N, M]  x [M, K]    nt    result K x N

A launch states the tiles of its result, and a kernel's name their size: cuBLAS, column-major, so the first axis of the
grid is the last one of torch. The summed length of each is an axis of the other two. Autograd runs layers in reverse,
so a backward belongs to the latest forward whose result fits. A size lies in (tiles - 1, tiles] x tile; the least upper
bound of its launches is taken. Kernels of SIMT units only: others may swizzle their grid. Nothing is fitted.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

TILED = re.compile(r"_sgemm_(\d+)x(\d+)(?:_\w+)?_(tn|nn|nt)\b")
OTHER_OPS = re.compile("bmm|conv", re.IGNORECASE)  # batched products; convolutions as products
MOST_PARTS = 64  # of the third axis: more are batches, fewer parts of the sum
MOST_FORWARDS = 256  # that wait for their backward
SIZES_OF = {"tn": "mnk", "nn": "mkn", "nt": "nkm"}  # rows, columns and summed length, in the sizes of the layer
COLUMNS = ("rank", "stream", "op_name", "event_name", "grid")


@dataclass(frozen=True)
class Span:
    """Where a size lies: above `low`, up to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class Launch:
    """A gemm.

    Attributes:
        row: in the table.
        kind: tn, nn or nt.
        first, second: of its result, as in the module's table.
    """

    row: int
    kind: str
    first: Span
    second: Span


Sizes = tuple[int, int, int]  # rows, columns and summed length of a product


def launched_sizes(nodes: pd.DataFrame) -> dict[int, Sizes]:
    """Row of compute nodes in program order -> sizes of its product, where launches determine them."""
    if not set(COLUMNS) <= set(nodes.columns):
        return {}
    is_gemm = nodes["event_name"].astype(str).str.contains("_sgemm_", regex=False).to_numpy()
    columns = (nodes.loc[is_gemm, name].astype(object).tolist() for name in COLUMNS)
    lanes: dict[tuple[int, int], list[Launch]] = {}
    for row, rank, stream, *launch in zip(np.flatnonzero(is_gemm).tolist(), *columns, strict=True):
        lanes.setdefault((rank, stream), []).extend(_launches(row, *launch))
    return {row: sizes for lane in lanes.values() for row, sizes in _sizes_of_lane(lane).items()}


def _launches(row: int, op_name: object, event_name: object, grid: object) -> Iterator[Launch]:
    """The launch; none of another op, or of a kernel without known tiles."""
    named = TILED.search(str(event_name))
    if named is None or not isinstance(grid, str) or OTHER_OPS.search(str(op_name)):
        return
    tiles = json.loads(grid)
    if len(tiles) == 3 and tiles[2] <= MOST_PARTS:
        first, second = (Span((tiles[i] - 1) * int(named[i + 1]), tiles[i] * int(named[i + 1])) for i in (0, 1))
        yield Launch(row, named[3], first, second)


def _sizes_of_lane(launches: Sequence[Launch]) -> dict[int, Sizes]:
    forwards: deque[Launch] = deque(maxlen=MOST_FORWARDS)  # without a backward so far
    result: dict[int, Sizes] = {}
    for together in _backwards(launches):
        if together[0].kind == "tn":
            forwards.append(together[0])
        if together[-1].kind != "nt":  # the gradient of the input by itself: nothing states the outputs of its layer
            continue
        forward = next((each for each in reversed(forwards) if _layer((*together, each)) is not None), None)
        if forward is not None:
            forwards.remove(forward)
            together = (*together, forward)
        if (layer := _layer(together)) is not None:
            for each in together:
                rows, columns, summed = (layer[name] for name in SIZES_OF[each.kind])
                result[each.row] = rows, columns, summed
    return result


def _backwards(launches: Sequence[Launch]) -> Iterator[tuple[Launch, ...]]:
    """Forwards, gradients of one layer that follow each other, and gradients by themselves."""
    place = 0
    while place < len(launches):
        pair = tuple(launches[place : place + 2])
        together = [each.kind for each in pair] == ["nn", "nt"] and _overlap(*(each.first for each in pair))
        yield pair if together else pair[:1]
        place += 2 if together else 1


def _overlap(a: Span, b: Span) -> bool:
    return a.low < b.high and b.low < a.high


def _layer(launches: Sequence[Launch]) -> Mapping[str, int] | None:
    """The sizes on which all launches agree; None: they do not, or one size is in none of them."""
    spans: dict[str, list[Span]] = {"m": [], "n": [], "k": []}
    for each in launches:
        sizes = SIZES_OF[each.kind]
        rows, columns = sizes[0], sizes[1]
        spans[columns].append(each.first)
        spans[rows].append(each.second)
    if not all(spans.values()):
        return None
    low, high = ({name: least([getattr(s, side) for s in known]) for name, known in spans.items()}
                 for side, least in (("low", max), ("high", min)))  # fmt: skip
    return high if all(low[name] < high[name] for name in spans) else None
