"""Calls of graphs and of calibrations, as the fit takes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toys import make_graph

from gnnperf.analytic.cpu.measured import read_calibrated_calls, recorded_calls
from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType


def node(latency_us: float, **columns: object) -> dict[str, object]:
    return {"node_type": NodeType.COMPUTE, "thread": 0, "op_name": "aten::relu", "input_dims": "[[8]]",
            "dtype": "float32", "family": "elementwise", "flops": 8.0, "bytes": 64.0, "latency_us": latency_us,
            "opened_ops": 0, **columns}  # fmt: skip


def test_a_call_passed_on_in_python_states_nothing_of_an_op_that_opens_none() -> None:
    """ReLU opens nothing of its own; a loss always opens two ops, and sometimes a third."""
    plain, passed_on = node(1.0), node(30.0, opened_ops=6)
    losses = [node(5.0, op_name="aten::loss", opened_ops=opened) for opened in (2, 3)]
    result = recorded_calls([make_graph([plain, passed_on, *losses], [])]).set_index("op_name")
    assert result.loc["aten::relu", ["latency_us", "times"]].tolist() == [1.0, 1]
    assert result.filter(like="loss", axis=0)["times"].sum() == 2  # rows for one after the other, and after the rest


def test_equal_calls_are_one_row_with_their_mean() -> None:
    graph = make_graph([node(1.0), node(2.0), node(9.0), node(5.0, input_dims="[[9]]")], [])
    result = recorded_calls([graph]).set_index("input_dims")
    assert result.loc["[[8]]", ["latency_us", "times", "source"]].tolist() == [4.0, 3, "recorded"]
    assert result.loc["[[9]]", "times"] == 1


def test_kernels_of_a_gpu_unlabeled_calls_and_work_outside_steps_do_not_count() -> None:
    rows = [node(1.0, stream=0), node(float("nan")), node(1.0, step=-1)]
    assert recorded_calls([make_graph(rows, [])]).empty


def row(op: str, shapes: list[Any], **columns: object) -> dict[str, object]:
    return {"op": f"aten::{op}", "kind": "op", "direction": "forward", "shapes": json.dumps(shapes),
            "dtypes": json.dumps(["float32"] * len(shapes)), "arguments": "{}", "tables": 1, "cache": "warm",
            "latency_us": 3.0, **columns}  # fmt: skip


@pytest.fixture
def calls(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Calls read from an op table of one row."""

    def read(**columns: Any) -> list[dict[str, Any]]:
        pd.DataFrame([row(columns.pop("op"), columns.pop("shapes"), **columns)]).to_parquet(tmp_path / "ops.parquet")
        result = read_calibrated_calls([tmp_path / "ops.parquet"])
        assert result is not None
        return [{str(name): value for name, value in record.items()} for record in result.to_dict("records")]

    return read


Calls = Callable[..., list[dict[str, Any]]]


def test_a_product_is_recorded_as_it_is(calls: Calls) -> None:
    (result,) = calls(op="mm", shapes=[[2, 3], [3, 4]])
    assert (result["op_name"], result["input_dims"], result["flops"]) == ("aten::mm", "[[2,3],[3,4]]", 48.0)
    assert (result["latency_us"], result["source"], result["family"]) == (3.0, "calibrated", "gemm")


def test_a_gradient_has_the_name_and_shapes_of_its_op(calls: Calls) -> None:
    (result,) = calls(op="tanh", shapes=[[16]], direction="backward")
    assert (result["op_name"], result["input_dims"]) == ("aten::tanh_backward", "[[16],[16]]")


def test_both_products_of_a_convolutions_gradient_count(calls: Calls) -> None:
    geometry = {"stride": [2, 2], "padding": [1, 1], "groups": 1}
    shapes = [[2, 16, 8, 8], [32, 16, 3, 3]]
    (forward,) = calls(op="conv2d", shapes=shapes, arguments=json.dumps(geometry))
    (backward,) = calls(op="conv2d", shapes=shapes, arguments=json.dumps(geometry), direction="backward")
    assert forward["flops"] == 2 * 2 * 16 * 32 * 16 * 9  # images, 4 x 4 places, channels out and in, window
    assert backward["op_name"] == "aten::convolution_backward"
    assert backward["input_dims"].startswith("[[2,32,16,1],[2,16,8,8],[32,16,3,3]")
    assert backward["flops"] == 2 * forward["flops"]


def test_a_pool_and_its_gradient(calls: Calls) -> None:
    kernel = json.dumps({"kernel_size": [2, 2], "stride": [2, 2]})
    assert calls(op="avg_pool2d", shapes=[[1, 2, 8, 6]], arguments=kernel)[0]["family"] == "pooling"
    (result,) = calls(op="max_pool2d", shapes=[[1, 2, 8, 6]], arguments=kernel, direction="backward")
    assert result["input_dims"] == "[[1,2,4,3],[1,2,8,6]]"


def test_a_sparse_sum_has_the_tables_shape_twice(calls: Calls) -> None:
    (result,) = calls(op="add_", shapes=[[100, 4], [6, 4]], dtypes='["float32", "sparse_float32"]')
    assert (result["family"], result["input_dims"], result["flops"]) == ("embedding", "[[100,4],[100,4],[]]", 48.0)


@pytest.mark.parametrize(
    "columns",
    [{"cache": "flushed"}, {"tables": 4}, {"kind": "collective"}, {"op": "my_own"},
     {"op": "erf", "direction": "backward"}, {"op": "mm", "shapes": [[2, 3], [3, 4]], "direction": "backward"},
     {"op": "embedding", "shapes": [[9, 4], [2]], "dtypes": '["float32", "int64"]', "direction": "backward"}],
)  # fmt: skip
def test_what_is_left_out(columns: dict[str, Any], calls: Calls) -> None:
    assert calls(**{"op": "relu", "shapes": [[8]], **columns}) == []


def test_no_files_no_calls() -> None:
    assert read_calibrated_calls([]) is None


def test_files_that_are_no_op_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_calibrated_calls([tmp_path / "missing.parquet"])
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(InputError, match="cannot be read"):
        read_calibrated_calls([tmp_path / "text.parquet"])
    pd.DataFrame({"op": ["aten::mm"]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="column 'shapes' is missing"):
        read_calibrated_calls([tmp_path / "other.parquet"])
    pd.DataFrame({"op": ["aten::neg"], "shapes": ["[[4]]"], "dtype": ["float32"]}).to_parquet(tmp_path / "bare.parquet")
    with pytest.raises(InputError, match="column 'tables' is missing"):
        read_calibrated_calls([tmp_path / "bare.parquet"])


def test_flushed_rows_count_for_tables_only_and_come_after_all_else(calls: Calls) -> None:
    (lookup,) = calls(op="embedding", shapes=[[9, 4], [2]], dtypes='["float32", "int64"]', cache="flushed")
    (warm,) = calls(op="relu", shapes=[[8]])
    assert lookup["between_bytes"] == 2.0**30 and warm["between_bytes"] == 0
