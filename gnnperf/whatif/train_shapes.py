"""A table as a tensor train: how rows and columns are factored, and what a look-up multiplies.

[100000, 32]   rows 47 x 47 x 46, columns 4 x 4 x 2, rank 16:  [47, 4 x 16]  [47, 16 x 4 x 16]  [46, 16 x 2]

Oseledets 2011, "Tensor-Train Decomposition"; Yin et al. 2021, "TT-Rec: Tensor Train Compression for Deep Learning
Recommendation Models", sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gnnperf.generate import Argument, Shape

CORES = 3  # as TT-Rec
Call = tuple[str, tuple[Argument, ...], float]  # op, shapes, FLOPs where shapes do not tell them


@dataclass(frozen=True)
class Train:
    """The factors of one table.

    Attributes:
        rows: [3] their product is the table's rows, or a little more.
        columns: [3] their product is the table's columns.
        rank: between neighbors.
    """

    rows: tuple[int, int, int]
    columns: tuple[int, int, int]
    rank: int

    @property
    def cores(self) -> tuple[Shape, Shape, Shape]:
        """[rows of a core, values of a row] of each."""
        (a, b, c), (x, y, z), rank = self.rows, self.columns, self.rank
        return (a, x * rank), (b, rank * y * rank), (c, rank * z)

    @property
    def elements(self) -> int:
        """Parameters in all."""
        return sum(prod(core) for core in self.cores)


def train_of(table: Shape, rank: int) -> Train:
    """Factors as near to each other as they get: rows rounded up, columns exact."""
    rows, columns = table
    first = ceil_root(rows, 3)
    second = ceil_root(-(-rows // first), 2)
    return Train((first, second, -(-rows // (first * second))), _exact(columns), rank)


def ceil_root(number: int, degree: int) -> int:
    """The least whole number whose power is at least `number`."""
    found = round(number ** (1.0 / degree))
    while found**degree < number:
        found += 1
    while found > 1 and (found - 1) ** degree >= number:
        found -= 1
    return found


def _exact(columns: int) -> tuple[int, int, int]:
    """Three factors of a number, the largest first, their sum the least."""
    triples = [
        (a, b, columns // (a * b))
        for a in range(1, columns + 1) if columns % a == 0
        for b in range(1, a + 1) if columns // a % b == 0 and columns // (a * b) <= b
    ]  # fmt: skip
    return min(triples, key=sum)


def forward_calls(train: Train, looked_up: int, bags: int | None) -> list[Call]:
    """What a look-up becomes: places in the cores, two batched products, the sum of a bag's rows."""
    (x, y, z), rank = train.columns, train.rank
    columns = prod(train.columns)
    calls: list[Call] = [
        ("aten::remainder", ((looked_up,), ()), 0.0),
        ("aten::bmm", ((looked_up, x, rank), (looked_up, rank, y * rank)), 0.0),
        ("aten::bmm", ((looked_up, x * y, rank), (looked_up, rank, z)), 0.0),
    ]
    if bags is not None:
        calls.append(("aten::index_add", ((bags, columns), (), (looked_up,), (looked_up, columns)),
                      float(looked_up * columns)))  # fmt: skip
    return calls


def backward_calls(train: Train, looked_up: int) -> list[Call]:
    """The first product again (TT-Rec keeps none), two products for each, gradients added to the rows of the cores."""
    (x, y, z), rank = train.columns, train.rank
    products = [
        ((looked_up, x, rank), (looked_up, rank, y * rank)),
        ((looked_up, rank, x * y), (looked_up, x * y, z)),
        ((looked_up, x * y, z), (looked_up, z, rank)),
        ((looked_up, rank, x), (looked_up, x, y * rank)),
        ((looked_up, x, y * rank), (looked_up, y * rank, rank)),
    ]
    calls: list[Call] = [("aten::remainder", ((looked_up,), ()), 0.0)]
    calls += [("aten::bmm", factors, 0.0) for factors in products]
    calls += [("aten::index_add", (core, (), (looked_up,), (looked_up, core[1])), float(looked_up * core[1]))
              for core in train.cores]  # fmt: skip
    return calls
