"""The points of a calibration: products, streams, the launch floor and embedding lookups, from small to large."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from gnnperf.record.calibrate.point import Direction, OpPoint, op_point

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int64": 8, "int8": 1}
FLOOR_OP = "aten::neg_"


@dataclass(frozen=True)
class Lookup:
    """One embedding lookup: tables of rows x dim, batch bags of `pooling` rows each, access skew."""

    tables: int
    rows: int
    dim: int
    batch: int
    pooling: int
    skew: float


@dataclass(frozen=True)
class Sizes:
    """What a suite covers."""

    products: dict[str, tuple[int, ...]]  # dtype -> edges n of n x n x n products
    stream_bytes: tuple[int, ...]  # bytes of one operand of copy, sum and triad
    lookups: tuple[Lookup, ...]  # embedding lookups
    tf32: tuple[int, ...] = ()  # edges of float32 products with TF32
    oblong: tuple[tuple[int, int, int], ...] = ()  # (m, k, n) of float32 and bfloat16 products
    batched: tuple[tuple[int, int], ...] = ()  # (batch, n) of n x n x n products
    backward: tuple[int, ...] = ()  # edges of float32 products whose gradient is measured
    int8: tuple[int, ...] = ()  # edges of int8 products, whose results are int32
    grouped: tuple[tuple[int, int, int, int], ...] = ()  # (groups, m of all, k, n) of bfloat16 products of experts


CPU = Sizes(
    # float16 has no fast path on most CPUs: 1 GFLOP/s, so that larger products would take seconds
    products={"float32": (32, 128, 512, 1024), "float64": (128, 512), "bfloat16": (32, 128, 512, 1024),
              "float16": (32, 128)},
    oblong=((64, 512, 512), (16, 4096, 64), (1024, 64, 1024)),
    batched=((16, 32), (64, 64), (8, 256)),
    stream_bytes=tuple(2**power for power in (14, 18, 21, 24, 27)),
    lookups=(Lookup(1, 1_000, 16, 256, 1, 1.0), Lookup(1, 100_000, 32, 256, 8, 1.0),
             Lookup(1, 100_000, 32, 256, 8, 4.0), Lookup(8, 10_000, 32, 256, 4, 1.0),
             Lookup(1, 1_000_000, 64, 512, 16, 1.0),
             Lookup(1, 1_000_000, 64, 512, 16, 4.0), Lookup(4, 200_000, 64, 1024, 1, 2.0)),
    backward=(128, 512),
)  # fmt: skip
CUDA = Sizes(
    products={"float32": (128, 512, 1024, 2048, 4096), "float64": (128, 512, 2048, 4096),
              "bfloat16": (128, 512, 1024, 2048, 4096, 8192), "float16": (128, 512, 2048, 8192)},
    tf32=(128, 512, 2048, 8192),
    oblong=((64, 4096, 4096), (16, 16384, 1024), (8192, 1024, 1024), (16384, 64, 1024)),
    batched=((16, 64), (256, 64), (64, 256), (64, 1024)),
    stream_bytes=tuple(2**power for power in (14, 18, 22, 24, 27, 30)),
    lookups=(Lookup(1, 100_000, 64, 4096, 8, 1.0), Lookup(1, 100_000, 64, 4096, 8, 4.0),
             Lookup(8, 1_000_000, 64, 4096, 8, 1.0), Lookup(8, 1_000_000, 64, 4096, 8, 4.0),
             Lookup(1, 10_000_000, 128, 8192, 1, 1.0), Lookup(1, 10_000_000, 128, 8192, 32, 1.0),
             Lookup(1, 10_000_000, 128, 8192, 32, 4.0)),
    backward=(512, 2048),
    int8=(512, 2048, 8192),
    grouped=((8, 8192, 1024, 4096), (16, 16384, 512, 256), (64, 16384, 2048, 1408), (128, 4096, 2048, 768)),
)  # fmt: skip
FP8_EDGES = (512, 2048, 8192)


def points(sizes: Sizes, fp8: bool = False) -> tuple[OpPoint, ...]:
    """Every point of a suite; `fp8`: the device multiplies in 8 bits, and has kernels for experts' groups."""
    result: list[OpPoint] = [floor_point()]
    for dtype, edges in sizes.products.items():
        result += [product(n, n, n, dtype) for n in edges]
    result += [product(n, n, n, "float32", tf32=True) for n in sizes.tf32]
    result += [product(*mkn, dtype) for mkn in sizes.oblong for dtype in ("float32", "bfloat16")]
    result += [batched(b, n, dtype) for b, n in sizes.batched for dtype in ("float32", "bfloat16")]
    result += [product(n, n, n, "float32", direction=Direction.BACKWARD) for n in sizes.backward]
    result += [scaled_product(n) for n in FP8_EDGES if fp8]
    result += [*map(int8_product, sizes.int8), *(grouped(*shape) for shape in sizes.grouped)] if fp8 else []
    result += [point for num_bytes in sizes.stream_bytes for point in streams(num_bytes)]
    result += [point for lookup in sizes.lookups for point in lookups(lookup)]
    return tuple(result)


def floor_point() -> OpPoint:
    """The smallest op there is: one element, in place."""
    return op_point(FLOOR_OP, [(1,)], "float32", moved_bytes=8.0)


def product(m: int, k: int, n: int, dtype: str, **more: Any) -> OpPoint:
    """[m, k] x [k, n]. Its gradient is two such products."""
    times = 2 if more.get("direction") is Direction.BACKWARD else 1
    moved = (m * k + k * n + m * n) * ITEM_BYTES[dtype]
    return op_point("aten::mm", [(m, k), (k, n)], dtype, flops=2.0 * m * k * n * times,
                    moved_bytes=float(moved * times), **more)  # fmt: skip


def batched(batch: int, n: int, dtype: str) -> OpPoint:
    """`batch` products of n x n."""
    return op_point("aten::bmm", [(batch, n, n)] * 2, dtype, flops=2.0 * batch * n**3,
                    moved_bytes=3.0 * batch * n * n * ITEM_BYTES[dtype])  # fmt: skip


def scaled_product(n: int) -> OpPoint:
    """n x n x n in float8, a scale per operand; the second operand is transposed, which the hardware requires."""
    return OpPoint(
        "aten::_scaled_mm",
        ((n, n), (n, n), (), ()),
        ("float8_e4m3fn", "float8_e4m3fn", "float32", "float32"),
        arguments=(("out_dtype", "bfloat16"),),
        transposed=(1,),
        flops=2.0 * n**3,
        moved_bytes=4.0 * n * n,
    )


def int8_product(n: int) -> OpPoint:
    """n x n x n of 8-bit integers; the second operand is transposed, which the hardware requires."""
    moved = 6.0 * n * n  # the result has 4 bytes per number
    return op_point("aten::_int_mm", [(n, n)] * 2, "int8", transposed=(1,), flops=2.0 * n**3, moved_bytes=moved)


def grouped(groups: int, m: int, k: int, n: int) -> OpPoint:
    """Rows [m, k], as many of each group, times its own [k, n]; weights are transposed, as linear layers have them."""
    moved = (m * k + groups * k * n + m * n) * ITEM_BYTES["bfloat16"]
    return OpPoint(
        "aten::_grouped_mm", ((m, k), (groups, k, n), (groups,)), ("bfloat16", "bfloat16", "int32"),
        transposed=(1,), flops=2.0 * m * k * n, moved_bytes=float(moved),
    )  # fmt: skip


def streams(num_bytes: int) -> Iterator[OpPoint]:
    """copy (a = b), sum (read only) and triad (a = b + 3 c) over operands of `num_bytes` (McCalpin's STREAM, 1995)."""
    n = num_bytes // ITEM_BYTES["float32"]
    yield op_point("aten::copy_", [(n,)] * 2, "float32", moved_bytes=2.0 * num_bytes)
    yield op_point("aten::sum", [(n,)], "float32", flops=float(n), moved_bytes=float(num_bytes))
    yield op_point("aten::add.out", [(n,)] * 3, "float32", arguments=(("alpha", 3.0),), flops=2.0 * n,
                   moved_bytes=3.0 * num_bytes)  # fmt: skip


def lookups(lookup: Lookup) -> Iterable[OpPoint]:
    """Forward, backward with a dense and with a sparse gradient (mode 0: rows of a bag are summed)."""
    row_bytes, num = lookup.dim * 4, lookup.batch * lookup.pooling
    read = float(num * (row_bytes + 8) + lookup.batch * row_bytes)
    for direction, sparse in ((Direction.FORWARD, False), (Direction.BACKWARD, False), (Direction.BACKWARD, True)):
        dense_bytes = lookup.rows * row_bytes if direction is Direction.BACKWARD and not sparse else 0
        yield OpPoint(
            "aten::embedding_bag",
            ((lookup.rows, lookup.dim), (num,), (lookup.batch,)),
            ("float32", "int64", "int64"),
            arguments=(("mode", 0), ("sparse", sparse)),
            direction=direction, tables=lookup.tables, skew=lookup.skew,
            flops=float(num * lookup.dim), moved_bytes=read + dense_bytes,
        )  # fmt: skip


def footprint_bytes(point: OpPoint) -> int:
    """Of one call's tensors."""
    tensors = zip(point.shapes, point.dtypes, strict=True)
    return sum(prod(shape) * ITEM_BYTES.get(dtype, 4) for shape, dtype in tensors if shape is not None)
