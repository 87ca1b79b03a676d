"""Lists of ops: what is read, what is refused."""

import json
from pathlib import Path

import msgspec
import pytest

from gnnperf.core.errors import InputError
from gnnperf.record.calibrate.ops_file import read_ops
from gnnperf.record.calibrate.point import Direction, OpPoint

ADDMM = {"op": "aten::addmm", "shapes": [[8], [4, 6], [6, 8]], "dtype": "float32"}
BAG = {"op": "aten::embedding_bag", "shapes": [[100, 4], [32], [8]], "dtypes": ["float32", "int64", "int64"],
       "arguments": {"mode": 0, "sparse": True}, "direction": "backward", "skew": 4, "tables": 2}  # fmt: skip


def written(tmp_path: Path, *entries: object) -> Path:
    path = tmp_path / "ops.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def test_lines_become_points_once_each(tmp_path: Path):
    first, second = read_ops(written(tmp_path, ADDMM, BAG, ADDMM))
    assert (first.op, first.shapes, first.dtypes) == ("aten::addmm", ((8,), (4, 6), (6, 8)), ("float32",) * 3)
    assert second.direction is Direction.BACKWARD
    assert (second.skew, second.tables, dict(second.arguments)) == (4.0, 2, {"mode": 0, "sparse": True})
    assert msgspec.json.decode(msgspec.json.encode(second), type=OpPoint) == second


@pytest.mark.parametrize(
    ("entry", "statement"),
    [
        ({**ADDMM, "op": "aten::adddmm"}, "no op named 'aten::adddmm'"),
        ({**ADDMM, "shapes": [[8]]}, "no overload for 1 tensors"),
        ({**ADDMM, "arguments": {"gamma": 1}}, "no overload"),
        ({**ADDMM, "dtype": "float33"}, "no dtype named 'float33'"),
        ({**ADDMM, "shapes": [[8.5]]}, "Expected `int`, got `float` - at `$.shapes[0][0]`"),
        ({**ADDMM, "colour": 1}, "unknown field `colour`"),
        ({**ADDMM, "direction": "sideways"}, "Invalid enum value 'sideways' - at `$.direction`"),
        ({**ADDMM, "tables": 0}, "Expected `int` >= 1 - at `$.tables`"),
        ({**BAG, "dtypes": ["float32"]}, "dtypes are"),
        *(({**ADDMM, "transposed": places}, "transposed") for places in ([True], [3], [-1], "0")),
        ([1], "Expected `object`"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, entry: object, statement: str):
    with pytest.raises(InputError) as refused:
        read_ops(written(tmp_path, ADDMM, entry))
    assert statement in str(refused.value)


def test_an_empty_or_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="names no op"):
        read_ops(written(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        read_ops(tmp_path / "absent.jsonl")
