"""Lists of ops for `gnnperf calibrate --ops`: what CPU kernels and lookups cost on a machine.

    python -m research.benchmarks._cpu_ops [ops|updates|lookups] > ops.jsonl
    gnnperf calibrate --out datasets/cpu-ops --ranks 1 --minutes 5 --ops ops.jsonl

Sizes are drawn from ranges. ops: which are listed, and SMALL_SIDES, were chosen after looking at ops of
datasets/cpu-gloo that the model got wrong. updates: of optimizers that are neither fused nor foreach, dropout, roots,
logarithms; chosen after looking at programs of datasets/cpu-unseen. Both have seen the programs that they are judged
by. lookups: tables, skews and pooling factors beyond the suite.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from math import exp, log
from typing import Any

ROWS, SKEWS = (1_000, 10_000, 50_000, 200_000, 1_000_000), (1.0, 2.0, 4.0)
DIMS, POOLING, BATCHES, TABLES = (8, 16, 32, 64, 128), (1, 2, 8, 32), (128, 512, 2048), (1, 1, 4)
MOST_TABLE_BYTES, MOST_LOOKUPS, NUM_LOOKUPS, LOOKUP_SEED = 256_000_000, 32_768, 42, 7
WAYS = (("forward", False), ("backward", False), ("backward", True))


def lookups() -> list[tuple[int, int, int, int, float, int]]:
    """(rows, dim, pooling, batch, skew, tables), each row count and skew as often as the others."""
    chance = random.Random(LOOKUP_SEED)
    result: dict[tuple[int, int, int, int, float, int], None] = {}
    turn = 0
    while len(result) < NUM_LOOKUPS:
        rows, skew = ROWS[turn % len(ROWS)], SKEWS[turn % len(SKEWS)]
        dim, pooling, batch, tables = (chance.choice(axis) for axis in (DIMS, POOLING, BATCHES, TABLES))
        turn += 1
        if rows * dim * 4 * tables <= MOST_TABLE_BYTES and batch * pooling <= MOST_LOOKUPS:
            result[rows, dim, pooling, batch, skew, tables] = None
    return list(result)


def lines() -> Iterator[str]:
    """One op per line."""
    for rows, dim, pooling, batch, skew, tables in lookups():
        for direction, sparse in WAYS:
            yield json.dumps({
                "op": "aten::embedding_bag", "shapes": [[rows, dim], [batch * pooling], [batch]],
                "dtypes": ["float32", "int64", "int64"], "arguments": {"mode": 0, "sparse": sparse},
                "direction": direction, "tables": tables, "skew": skew,
            })  # fmt: skip


UPDATE_SEED = 12
RANGES = ((64, 4096), (4096, 1 << 17), (1 << 17, 1 << 20))  # elements
ROOTS = ("sqrt", "rsqrt", "log")
DROPPED = (0.1, 0.1, 0.1, 0.2, 0.2, 0.5)  # a likely branch is predicted, so the share matters


def update_entries(sizes: Sizes) -> Iterator[Entry]:
    """All ops."""
    for low, high in RANGES:
        n = sizes.between(low, high)
        yield from (op_entry(name, (n,)) for name in ROOTS)
        yield from (op_entry(name, (n,), (n,), (n,)) for name in ("addcmul_", "addcdiv_"))
        yield op_entry("lerp_", (n,), (n,), arguments={"weight": 0.1})
        yield op_entry("div", (n,), (n,))
    for share in DROPPED:
        shape = (sizes.between(16, 1024), sizes.between(16, 512))
        yield op_entry("native_dropout", shape, arguments={"p": share, "train": True})


SEED = 11
Entry = dict[str, Any]
UNARY = ("relu", "tanh", "sigmoid", "gelu", "silu", "exp", "log", "sqrt", "abs", "neg", "sin", "erf")
BINARY = ("add", "mul", "div", "sub", "maximum", "add_", "mul_")
UNARY_BACKWARD = ("relu", "tanh", "sigmoid", "gelu", "silu")
SMALL_SIDES = (2, 3, 4, 5, 7, 10, 13, 16)


class Sizes:
    """Whole numbers that are equally likely in ratio."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        """One of them."""
        return round(exp(self._chance.uniform(log(low), log(high))))

    def one_of(self, values: Sequence[Any]) -> Any:
        """Any value, equally likely."""
        return self._chance.choice(values)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """All ops."""
    for part in (_products, _elementwise, _rows, _moves, _convolutions, _pooling, _attention, _tables):
        yield from part(sizes)


def op_entry(name: str, *shapes: Sequence[int], **more: Any) -> Entry:
    """One call: `aten::name` on tensors of these shapes, float32 if `more` does not say dtypes."""
    dtypes = {} if "dtypes" in more else {"dtype": "float32"}
    return {"op": f"aten::{name}", "shapes": [list(s) for s in shapes], **dtypes, **more}


def _products(sizes: Sizes) -> Iterator[Entry]:
    for turn in range(40):
        m, n, k = (sizes.between(16, 1024) for _ in range(3))
        sides = [m, n, k]
        if turn % 4 == 0:
            sides[sizes.one_of((0, 1, 2))] = sizes.one_of(SMALL_SIDES)
        m, n, k = sides
        yield op_entry("mm", (m, k), (k, n), transposed=[0] if turn % 2 else [])
        yield op_entry("linear", (m, k), (n, k), (n,))
    for _ in range(24):
        batch = sizes.between(4, 1024)
        m, n, k = (sizes.one_of((*SMALL_SIDES, 32, 64)) for _ in range(3))
        yield op_entry("bmm", (batch, m, k), (batch, k, n), transposed=sizes.one_of(([], [1])))


def _elementwise(sizes: Sizes) -> Iterator[Entry]:
    for name in UNARY:
        for low, high in ((64, 4096), (4096, 1 << 17), (1 << 17, 1 << 21)):
            yield op_entry(name, (sizes.between(low, high),))
    for name in UNARY_BACKWARD:
        for low, high in ((512, 1 << 16), (1 << 16, 1 << 20)):
            yield op_entry(name, (sizes.between(low, high),), direction="backward")
    for name in BINARY:
        for low, high in ((64, 1 << 13), (1 << 13, 1 << 17), (1 << 17, 1 << 21)):
            n = sizes.between(low, high)
            yield op_entry(name, (n,), (n,))
    for _ in range(6):
        rows, columns = sizes.between(8, 2048), sizes.between(8, 1024)
        yield op_entry("add", (rows, columns), (columns,))
        yield op_entry("mul", (rows, columns), (rows, 1))
        yield op_entry("bernoulli", (rows, columns), arguments={"p": 0.5})
        yield op_entry("binary_cross_entropy_with_logits", (rows,), (rows,))
        yield op_entry("mse_loss", (rows, 8), (rows, 8))


def _rows(sizes: Sizes) -> Iterator[Entry]:
    for _ in range(8):
        rows, columns = sizes.between(16, 2048), sizes.between(16, 1024)
        shape = (rows, columns)
        yield op_entry("sum", shape, arguments={"dim": [sizes.one_of((0, 1))]})
        yield op_entry("mean", shape, arguments={"dim": [1]})
        yield op_entry("amax", shape, arguments={"dim": [1]})
        for direction in ("forward", "backward"):
            yield op_entry("log_softmax", shape, arguments={"dim": 1}, direction=direction)
            yield op_entry("softmax", shape, arguments={"dim": 1}, direction=direction)
            yield op_entry("layer_norm", shape, (columns,), (columns,), arguments={"normalized_shape": [columns]},
                      direction=direction)  # fmt: skip
    for _ in range(4):
        shape = (sizes.between(16, 512), sizes.between(16, 512))
        yield op_entry("topk", shape, arguments={"k": 4})
        yield op_entry("sort", shape)
        yield op_entry("cumsum", shape, arguments={"dim": 1})
        yield op_entry("argmax", shape, arguments={"dim": 1})
    for _ in range(5):
        images, channels, side = sizes.between(4, 32), sizes.between(8, 128), sizes.between(4, 32)
        for direction in ("forward", "backward"):
            yield {**op_entry("native_batch_norm", (images, channels, side, side), (channels,), (channels,),
                         arguments={"training": True, "momentum": 0.1, "eps": 1e-5}, direction=direction),
                   "shapes": [[images, channels, side, side], [channels], [channels], None, None]}  # fmt: skip


def _moves(sizes: Sizes) -> Iterator[Entry]:
    for _ in range(8):
        rows, columns = sizes.between(8, 4096), sizes.between(8, 512)
        picked = sizes.between(8, 4096)
        yield op_entry("copy_", (rows, columns), (rows, columns), transposed=sizes.one_of(([], [1])))
        yield op_entry("cat", (rows, columns), (rows, sizes.between(8, 512)), arguments={"dim": 1})
        yield op_entry("index_select", (rows, columns), (picked,), dtypes=["float32", "int64"], arguments={"dim": 0})
        yield op_entry("zero_", (rows, columns))


def _convolutions(sizes: Sizes) -> Iterator[Entry]:
    for turn in range(28):
        images, side = sizes.between(2, 48), sizes.between(6, 40)
        into, out = sizes.one_of((3, 8, 16, 24, 32, 48, 64, 96)), sizes.one_of((8, 16, 24, 32, 48, 64, 96))
        window, stride = sizes.one_of((1, 3, 3, 3, 5)), sizes.one_of((1, 1, 2))
        groups = 1 if turn % 7 else out
        into = into if turn % 7 else out
        for direction in ("forward", "backward"):
            yield op_entry("conv2d", (images, into, side, side), (out, into // groups, window, window),
                      arguments={"stride": [stride, stride], "padding": [window // 2, window // 2], "groups": groups},
                      direction=direction)  # fmt: skip


def _pooling(sizes: Sizes) -> Iterator[Entry]:
    for _ in range(4):
        shape = (sizes.between(4, 32), sizes.between(8, 64), *([2 * sizes.between(4, 20)] * 2))
        for direction in ("forward", "backward"):
            yield op_entry("max_pool2d", shape, arguments={"kernel_size": [2, 2]}, direction=direction)
            yield op_entry("avg_pool2d", shape, arguments={"kernel_size": [2, 2]}, direction=direction)


def _attention(sizes: Sizes) -> Iterator[Entry]:
    for _ in range(8):
        shape = (sizes.between(1, 16), sizes.between(1, 8), sizes.between(16, 256), sizes.one_of((16, 32, 64)))
        for direction in ("forward", "backward"):
            yield op_entry("scaled_dot_product_attention", shape, shape, shape,
                      arguments={"is_causal": sizes.one_of((False, True))}, direction=direction)  # fmt: skip


def _tables(sizes: Sizes) -> Iterator[Entry]:
    for _ in range(8):
        rows, dim, looked_up = sizes.between(100, 100_000), sizes.one_of((8, 16, 32, 64)), sizes.between(64, 8192)
        yield op_entry("embedding", (rows, dim), (looked_up,), dtypes=["float32", "int64"])
        yield op_entry("embedding", (rows // 10 + 2, dim), (looked_up,), dtypes=["float32", "int64"],
                       direction="backward")  # fmt: skip
        bag = {"mode": 0, "sparse": True}
        yield op_entry("add_", (rows, dim), (looked_up, dim), dtypes=["float32", "sparse_float32"])
        yield op_entry("embedding_bag", (rows, dim), (looked_up,), (looked_up // 4 + 1,),
                  dtypes=["float32", "int64", "int64"], arguments=bag)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Print one list, an op per line."""
    lists = {"ops": lambda: map(json.dumps, entries(Sizes(SEED))), "lookups": lines,
             "updates": lambda: map(json.dumps, update_entries(Sizes(UPDATE_SEED)))}  # fmt: skip
    print("\n".join(lists[arguments[0] if arguments else "ops"]()))


if __name__ == "__main__":
    main(sys.argv[1:])
