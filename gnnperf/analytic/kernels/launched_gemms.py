"""Float32 gemms whose shapes were not recorded: sizes from the tiles that forward and backward launched.

    forward                      y  [M, N] = x  [M, K]  W [K, N]    result N x M
    gradient of the first        dx [M, K] = dy [M, N] W' [N, K]    result K x M
    of a weight                  dW [N, K] = dy'[N, M]  x [M, K]    result K x N
    of the second of a batch     dW [K, N] = x' [K, M] dy [M, N]    result N x K

A launch states the tiles of its result, and a kernel's name their size: cuBLAS, column-major, so the first axis of the
grid is the last one of torch. The summed length of each is an axis of the other two. The name also states which
operands are transposed: `tn`, `nn` and `nt` of a linear layer, and of batches what the forward's letters imply.
Autograd runs layers in reverse, so a backward belongs to the latest forward whose result fits. A forward without one
sums over the columns of the previous layer's result, if it has as many rows. A size lies in (tiles - 1, tiles] x tile.
The least upper bound of its launches is taken for layers, whose sizes are mostly multiples of a tile, and the middle
for batches, which have few tiles. Kernels of SIMT units only: others may swizzle their grid. Nothing is fitted.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import pandas as pd

TILED = re.compile(r"_sgemm_(\d+)x(\d+)(?:_\w+)?_(tn|nn|nt|tt)\b")
BATCHED = re.compile("bmm", re.IGNORECASE)
OTHER_OPS = re.compile("conv", re.IGNORECASE)  # convolutions as products
MOST_PARTS = 64  # of the third axis, which divides the sum where there is no batch: more are a batch
MOST_FORWARDS = 256  # that wait for their backward
FORWARD, INPUT, WEIGHT, SECOND = "mnk", "mkn", "nkm", "knm"  # rows, columns and summed length, as in the table above
COLUMNS = ("rank", "stream", "op_name", "event_name", "grid", "phase")


class Sizes(NamedTuple):
    """Of a product: rows, columns and summed length of each, and how many there are."""

    rows: int
    columns: int
    summed: int
    batch: int = 1


@dataclass(frozen=True)
class Span:
    """Where a size lies: above `low`, up to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class Launch:
    """A gemm."""

    row: int  # in the table
    kind: str  # whether the second and the first operand of torch are transposed (t) or not (n)
    first: Span  # of its result, as in the module's table
    second: Span
    batch: int  # products; 0: of a linear layer
    forward: bool  # whether it is no gradient


Roles = tuple[tuple[Launch, Sequence[str]], ...]  # launches of a layer, each with the sizes that it states


def launched_sizes(nodes: pd.DataFrame) -> dict[int, Sizes]:
    """Row of compute nodes in program order -> sizes of its product, where launches determine them."""
    if not set(COLUMNS) <= set(nodes.columns):
        return {}
    is_gemm = nodes["event_name"].astype(str).str.contains("_sgemm_", regex=False).to_numpy()
    columns = (nodes.loc[is_gemm, name].astype(object).tolist() for name in COLUMNS)
    lanes: dict[tuple[int, int, int], list[Launch]] = {}
    for row, rank, stream, *launch in zip(np.flatnonzero(is_gemm).tolist(), *columns, strict=True):
        for each in _launches(row, *launch):
            lanes.setdefault((rank, stream, each.batch), []).append(each)
    result: dict[int, Sizes] = {}
    for lane in lanes.values():
        for roles, layer in _layers(lane):
            for each, (m, n, k) in roles:
                result[each.row] = Sizes(layer[m], layer[n], layer[k], each.batch or 1)
        result |= _chained([each for each in lane if each.forward and not each.batch], result)
    return result


def _launches(row: int, op_name: object, event_name: object, grid: object, phase: object) -> Iterator[Launch]:
    """The launch; none of another op, or of a kernel without known tiles."""
    named = TILED.search(str(event_name))
    if named is None or not isinstance(grid, str) or OTHER_OPS.search(str(op_name)):
        return
    tiles, batched = json.loads(grid), BATCHED.search(str(op_name)) is not None
    if len(tiles) == 3 and (batched or (tiles[2] <= MOST_PARTS and named[3] != "tt")):
        first, second = (Span((tiles[i] - 1) * int(named[i + 1]), tiles[i] * int(named[i + 1])) for i in (0, 1))
        forward = phase != "backward" if batched else named[3] == "tn"
        yield Launch(row, named[3], first, second, tiles[2] if batched else 0, forward)


def _layers(launches: Sequence[Launch]) -> Iterator[tuple[Roles, Mapping[str, int]]]:
    """Launches of each layer with at least one gradient, and its sizes."""
    forwards: deque[Launch] = deque(maxlen=MOST_FORWARDS)  # without a backward so far
    place = 0
    while place < len(launches):
        pair = launches[place : place + 2]
        place += 1
        if pair[0].forward:
            forwards.append(pair[0])
            continue
        candidates = (roles for gradients in (pair, pair[:1]) for forward in (*reversed(forwards), None)
                      for roles in _roles(forward, gradients))  # fmt: skip
        for roles in candidates:
            if (layer := _layer(roles)) is not None:
                yield roles, layer
                taken = [each for each, _ in roles]
                place += pair[-1] in taken[1:]
                forwards = deque((each for each in forwards if each not in taken), MOST_FORWARDS)
                break


def _roles(forward: Launch | None, gradients: Sequence[Launch]) -> Iterator[Roles]:
    """Which gradients they may be. Of a batch, the backward transposes the operands that the forward did not."""
    orders: Iterable[tuple[str, ...]] = [(INPUT, WEIGHT)[-len(gradients) :]]
    kinds = {INPUT: "nn", WEIGHT: "nt"}
    if gradients[0].batch:
        if forward is None:
            return
        swapped = forward.kind.translate(str.maketrans("nt", "tn"))
        kinds = {SECOND: "n" + swapped[1], INPUT: swapped[0] + "n"}
        orders = permutations(kinds, len(gradients))
    for roles in orders:
        if all(kinds[role] == each.kind for role, each in zip(roles, gradients, strict=True)):
            yield (*zip(gradients, roles, strict=True), *([(forward, FORWARD)] if forward else []))


def _layer(launches: Roles) -> Mapping[str, int] | None:
    """The sizes on which all launches agree; None: they do not, or one size is in none of them."""
    spans: dict[str, list[Span]] = {"m": [], "n": [], "k": []}
    for each, role in launches:
        spans[role[1]].append(each.first)
        spans[role[0]].append(each.second)
    if not all(spans.values()):
        return None
    low, high = ({name: least([getattr(s, side) for s in known]) for name, known in spans.items()}
                 for side, least in (("low", max), ("high", min)))  # fmt: skip
    if any(low[name] >= high[name] for name in spans):
        return None
    batched = launches[0][0].batch
    return {name: (low[name] + high[name] + 1) // 2 if batched else high[name] for name in spans}


def _chained(forwards: Sequence[Launch], known: Mapping[int, Sizes]) -> dict[int, Sizes]:
    """Forwards without a backward, by what the previous layer put out."""
    result: dict[int, Sizes] = {}
    for previous, each in pairwise(forwards):
        if each.row not in known and each.second.low < previous.second.high and previous.second.low < each.second.high:
            summed = known[previous.row].columns if previous.row in known else previous.first.high
            result[each.row] = Sizes(each.second.high, each.first.high, summed)
    return result
