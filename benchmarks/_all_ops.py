"""Every op that has a cost formula and takes tensors only, in sizes drawn at random, for `gnnperf calibrate --ops`.

python -m benchmarks._all_ops > ops.jsonl
gnnperf calibrate --out datasets/cpu-all-ops --ranks 1 --minutes 8 --ops ops.jsonl

Elementwise ops and their in-place forms, reductions, norms and what moves rows: all of the table of formulas that torch
can be asked for without further settings. Which ones training programs use played no part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks._cpu_ops import Entry, Sizes
from gnnperf.calibrate.call import overload_of
from gnnperf.calibrate.point import OpPoint
from gnnperf.errors import InputError
from gnnperf.graph.cost.elementwise import BINARY, TERNARY, UNARY

SEED = 29
RANGES = ((8, 1 << 12), (1 << 12, 1 << 21))  # elements
NEED_INTEGERS = ("bitwise", "shift", "__")
NEED_MORE = ("clamp", "imag", "float_power", "where", "_s_where", "masked_fill")  # limits, a mask, another dtype
DO_NOTHING = ("real", "positive")


def entries(sizes: Sizes) -> Iterator[Entry]:
    """All ops."""
    yield from _elementwise(sizes)
    yield from _rows(sizes)
    yield from _images(sizes)


def _elementwise(sizes: Sizes) -> Iterator[Entry]:
    for arity, names in ((1, UNARY), (2, BINARY), (3, TERNARY)):
        for name in names:
            if name in NEED_MORE + DO_NOTHING or any(part in name for part in NEED_INTEGERS):
                continue
            for form in (name, f"{name}_"):
                if _is_op(form, arity):
                    for low, high in RANGES:
                        n = sizes.between(low, high)
                        yield {"op": f"aten::{form}", "shapes": [[n]] * arity, "dtype": "float32"}


def _is_op(name: str, arity: int) -> bool:
    """Whether torch has it for so many tensors and nothing else."""
    try:
        overload_of(OpPoint(f"aten::{name}", ((8,),) * arity, ("float32",) * arity))
    except InputError:
        return False
    return True


def _rows(sizes: Sizes) -> Iterator[Entry]:
    """What moves, sums or normalizes rows of a matrix."""
    for _ in range(6):
        rows, columns, picked = sizes.between(16, 4096), sizes.between(8, 512), sizes.between(16, 16384)
        matrix, dtypes = [rows, columns], ["float32", "int64"]
        yield {"op": "aten::index_select", "shapes": [matrix, [picked]], "dtypes": dtypes, "arguments": {"dim": 0}}
        yield {"op": "aten::index_add", "shapes": [matrix, [picked], [picked, columns]],
               "dtypes": [*dtypes, "float32"], "arguments": {"dim": 0}}  # fmt: skip
        for dim in (0, 1):
            for name in ("sum", "mean", "amax", "logsumexp"):
                yield {"op": f"aten::{name}", "shapes": [matrix], "dtype": "float32", "arguments": {"dim": [dim]}}


def _images(sizes: Sizes) -> Iterator[Entry]:
    """What works on [N, C, H, W]."""
    for _ in range(6):
        images, side = sizes.between(2, 32), 2 * sizes.between(2, 16)
        channels = 4 * sizes.between(2, 32)
        shape = [images, channels, side, side]
        for direction in ("forward", "backward"):
            yield {"op": "aten::group_norm", "shapes": [shape, [channels], [channels]], "dtype": "float32",
                   "arguments": {"num_groups": 4}, "direction": direction}  # fmt: skip
            yield {"op": "aten::upsample_nearest2d", "shapes": [shape], "dtype": "float32",
                   "arguments": {"output_size": [2 * side, 2 * side]}, "direction": direction}  # fmt: skip
            yield {"op": "aten::conv_transpose2d", "shapes": [shape, [channels, channels // 2, 4, 4]],
                   "dtype": "float32", "arguments": {"stride": [2, 2], "padding": [1, 1]},
                   "direction": direction}  # fmt: skip


if __name__ == "__main__":
    print("\n".join(json.dumps(entry) for entry in entries(Sizes(SEED))))
