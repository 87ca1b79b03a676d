"""A few measured calls correct the predictions for calls like them, and nothing else; which calls to measure."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import cluster

from gnnperf.core import InputError, NodeType
from gnnperf.graph import EdgeList, ExecutionGraph, node_table
from gnnperf.predict import StepPrediction, api, similar
from gnnperf.predict.coverage import calls_to_measure
from tests.command import Command
from tests.predict.predictions import Fixed, toy_prediction

EDGES = [16 * (i + 1) for i in range(40)]


def _graph(edges: Sequence[int] = EDGES, op: str = "aten::mm", family: str = "gemm") -> ExecutionGraph:
    """Square products, one node each, and no device; what was traced took 1 us for each of its 16 columns."""
    dims = [f"[[{e},{e}],[{e},{e}]]" for e in edges]
    nodes = node_table(
        len(edges), node_type=str(NodeType.COMPUTE), rank=0, step=0, device=0, node_id=np.arange(len(edges)),
        op_name=np.array([op] * len(edges), object), family=np.array([family] * len(edges), object),
        dtype=np.array(["float32"] * len(edges), object), input_dims=np.array(dims, object),
        flops=[2.0 * e**3 for e in edges], bytes=[12.0 * e**2 for e in edges], latency_us=[e / 16 for e in edges],
        num_siblings=1, opened_ops=0,
    )  # fmt: skip
    return ExecutionGraph(name="products", nodes=nodes, edges=EdgeList().table(), steps=(), ranks=(0,), world_size=1,
                          device_names=("a card of mine",))  # fmt: skip


GRAPH = _graph()
BASE = GRAPH.nodes["latency_us"].to_numpy(float)


def _measured(places: Sequence[int], factor: float) -> np.ndarray:
    result = np.full(len(EDGES), np.nan)
    result[list(places)] = factor * np.array(EDGES)[list(places)] / 16
    return result


def test_what_all_measured_calls_are_off_by_moves_the_others() -> None:
    factor, count = similar.factors(GRAPH.nodes, _measured(range(0, 40, 2), 2.0), BASE)
    assert set(count) == {20}
    assert factor[1::2] == pytest.approx(2.0, rel=0.25)  # shrunk toward 1
    assert (factor > 1.5).all()


def test_a_few_calls_change_nothing_and_calls_that_contradict_each_other_little() -> None:
    assert (similar.factors(GRAPH.nodes, _measured(range(9), 2.0), BASE)[0] == 1.0).all()
    assert (similar.factors(GRAPH.nodes, np.full(40, np.nan), BASE)[0] == 1.0).all()
    either = np.where(np.arange(40) % 2 == 0, 0.5, 2.0)  # neighbors contradict each other
    assert similar.factors(GRAPH.nodes, BASE * either, BASE)[0] == pytest.approx(1.0, abs=0.25)


def test_another_family_or_dtype_keeps_its_prediction() -> None:
    dtype = GRAPH.nodes["dtype"].astype(object).to_numpy(copy=True)
    dtype[39] = "float16"
    factor, count = similar.factors(GRAPH.nodes.assign(dtype=dtype), _measured(range(30), 2.0), BASE)
    assert (factor[39], count[39]) == (1.0, 0)
    assert factor[38] > 1.5


def test_numbers_of_a_call_by_hand() -> None:
    numbers = np.exp(similar.call_numbers(_graph([32]).nodes, np.array([5.0])))
    assert numbers[0].tolist() == pytest.approx([5.0, 1 + 2 * 32**3, 1 + 12 * 32**2, 32, 32, 32, 32])


def test_measured_calls_keep_their_latency_and_the_others_say_why(tmp_path: Path) -> None:
    from gnnperf.predict.measured import read_measured

    rows = [{"op": "aten::mm", "shapes": [[e, e], [e, e]], "dtypes": ["float32"] * 2, "latency_us": 2.0 * e / 16,
             "launch_included": False, "device": "a card of mine"} for e in EDGES[::2]]  # fmt: skip
    path = tmp_path / "ops.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = similar.SimilarPredictor(read_measured(path, Fixed()), Fixed()).predict(_graph(), cluster())
    assert result.latency_us[::2].tolist() == [2.0 * e / 16 for e in EDGES[::2]]
    assert (result.latency_us[1::2] > 1.5 * np.array(EDGES[1::2]) / 16).all()
    assert result.reasons[1] == similar.REASON.format(count=20)
    assert result.reasons[0] == "measured"


def test_the_longest_family_is_measured_and_small_ones_are_not() -> None:
    twice = _graph(EDGES * 2)  # a trace has several times of a call
    estimate = _prediction(replace(twice, nodes=twice.nodes.assign(latency_us=np.outer([1.0, 1.1], BASE).ravel())))
    assert len(list(calls_to_measure(estimate, 80))) == len(EDGES)
    lines = [json.loads(line) for line in calls_to_measure(estimate, 16)]
    assert 10 <= len(lines) <= 16
    edges = [line["shapes"][0][0] for line in lines]
    assert len(set(edges)) == len(edges)
    assert max(edges) > 400 > 200 > min(edges)  # spread over what is there
    assert {(line["op"], line["dtype"]) for line in lines} == {("aten::mm", "float32")}
    assert list(calls_to_measure(_prediction(_graph(EDGES[:9])), 16)) == []
    scalars = GRAPH.nodes.assign(input_dims=["[[],[]]"] * 30 + GRAPH.nodes["input_dims"].astype(object).tolist()[30:])
    assert len(list(calls_to_measure(_prediction(replace(GRAPH, nodes=scalars)), 40))) == 10  # what has shapes
    with pytest.raises(InputError, match="--choose"):
        list(calls_to_measure(estimate, 9))


def test_the_command_writes_the_chosen_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(api, "predict", lambda request: _prediction(_graph()))
    ops = tmp_path / "ops.jsonl"
    command.shown("coverage", tmp_path, "--ops", ops, "--choose", 12)
    assert 10 <= len(ops.read_text().splitlines()) <= 12
    assert "add --ops FILE" in command.refused("coverage", tmp_path, "--choose", 12)


def _prediction(graph: ExecutionGraph) -> StepPrediction:
    estimate = toy_prediction()
    return replace(estimate, prediction=Fixed().predict(graph, None))  # type: ignore[arg-type]


def _pool(seed: int = 0, count: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2))


def test_a_correction_by_hand() -> None:
    result = similar.corrections(np.zeros((1, 1)), np.array([0.001]), np.array([[0.0], [6.0]]))
    # A variance of 1 + 0.05. The row is met, so it counts 5 / 4, and the noise is 64 / 65 of 0.006.
    whole = 1.05 + 0.006 * 64 / 65 * 4 / 5
    assert result == pytest.approx([0.001 * 1.05 / whole, 0.001 * (1.0 + 0.05 / np.e) / whole], rel=1e-5)


def test_a_row_that_contradicts_all_others_hardly_counts() -> None:
    places, off = np.arange(10.0)[:, None], np.array([0.1] * 9 + [3.0])
    result = similar.corrections(places, off, places)
    assert result[:5] == pytest.approx(0.1, abs=0.02) and result[9] < 0.3


@pytest.mark.parametrize("count", [10, 64])
@pytest.mark.parametrize("factor", [1.3, 30.0])
def test_what_all_rows_share_is_taken_over(factor: float, count: int) -> None:
    values, off = _pool(count=count), np.log(factor) + 0.05 * np.random.default_rng(1).normal(size=count)
    assert similar.corrections(values, off, _pool(7)).mean() == pytest.approx(np.log(factor), abs=0.06)


def test_what_depends_on_size_is_transferred_to_similar_rows() -> None:
    values, unseen = _pool(count=128), _pool(7)
    known, off = 0.4 * np.tanh(values[:, 0]), 0.4 * np.tanh(unseen[:, 0])
    assert np.abs(off - similar.corrections(values, known, unseen)).mean() < 0.3 * np.abs(off).mean()


def test_chosen_rows_lie_where_rows_are() -> None:
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    values = np.repeat(centers, 20, axis=0) + 0.01 * _pool(2, 60)
    chosen = [similar.choose(values, 12, seed) for seed in range(3)]
    assert all(set(places // 20) == {0, 1, 2} for places in chosen)
    assert np.array_equal(chosen[0], similar.choose(values, 12, 0))


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="at most 5"):
        similar.choose(_pool(count=5), 6, 0)
