"""What the timeline draws is what the tracks are: unpacked as timeline_data.js does it."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from typing import Any

import numpy as np

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.page.timeline_data import MAX_TEXT, timeline_data
from gnnperf.report.summary import nodes_table
from gnnperf.report.timeline import tracks
from tests.predict.answers import GEMM_1, toy_answer


def _columns(data: dict[str, Any]) -> dict[str, np.ndarray]:
    packed, at, result = gzip.decompress(base64.b64decode(data["packed"])), 0, {}
    for column in data["columns"]:
        kind = np.dtype(column["type"])
        values = np.frombuffer(packed, kind, column["length"], at)
        at += column["length"] * kind.itemsize
        result[f"{column['of']} {column['name']}"] = np.cumsum(values, dtype=kind) if column["gaps"] else values
    assert at == len(packed)
    return result


def _data(answer: StepPrediction) -> dict[str, Any]:
    return timeline_data(answer, nodes_table(answer))


def test_slices_are_those_of_the_tracks() -> None:
    answer = toy_answer({GEMM_1: 305.0})
    data, slices = _data(answer), tracks(answer)
    columns = _columns(data)
    start_us = columns["slices start"] * data["tick_us"] + data["opens_us"]
    assert start_us.tolist() == (slices["start_ns"] / 1000).tolist()
    assert (columns["slices length"] * data["tick_us"]).tolist() == (
        (slices["end_ns"] - slices["start_ns"]) / 1000
    ).tolist()
    assert [data["words"]["name"][code] for code in columns["slices name"]] == slices["name"].tolist()
    lanes = [(lane["rank"], lane["name"], lane["end"] - lane["first"]) for lane in data["lanes"]]
    counted = slices.groupby("tid").agg(rank=("rank", "first"), track=("track", "first"), num=("rank", "size"))
    assert lanes == list(counted.itertuples(index=False, name=None))


def test_slices_say_what_is_known_of_their_nodes() -> None:
    answer = toy_answer({GEMM_1: 305.0})
    data = _data(answer)
    columns, words = _columns(data), data["words"]
    gemm = tracks(answer).query(f"node_id == {GEMM_1} and kind == 'predicted'").index[0]
    node = columns["slices node"][gemm]
    assert columns["nodes latency_us"][node] == 305.0
    assert columns["nodes measured_us"][node] == 120.0
    assert words["shapes"][columns["nodes shapes"][node]] == "512×512, 512×512"
    assert words["look"][columns["nodes look"][node]] == "compute"
    assert "nodes low_us" not in columns  # nothing knows it


def test_waits_and_transfers_look_so() -> None:
    answer = toy_answer()
    data, slices = _data(answer), tracks(answer)
    columns = _columns(data)
    looks = {
        data["words"]["look"][columns["nodes look"][node]]
        for node in columns["slices node"][slices["name"] == "c10d::allreduce_"]
    }
    assert looks == {"transfer"}
    waits = columns["slices node"][slices["name"].str.startswith("wait for peers")]
    assert {data["words"]["look"][columns["nodes look"][node]] for node in waits} == {"wait"}


def test_steps_too_long_for_nanoseconds_have_longer_ticks() -> None:
    data = _data(toy_answer({GEMM_1: 5e9}))  # an hour and more
    columns = _columns(data)
    ends = (columns["slices start"].astype(float) + columns["slices length"]) * data["tick_us"]
    assert data["tick_us"] > 1.0
    assert abs(ends.max() / (5e9 + 65.0) - 1.0) < 1e-6


def test_long_texts_are_cut() -> None:
    answer = toy_answer()
    graph = answer.prediction.graph
    shapes = (
        graph.nodes["input_dims"].astype(object).where(graph.nodes["input_dims"].isna(), "9" * 1000).astype("category")
    )
    longer = replace(graph, nodes=graph.nodes.assign(input_dims=shapes))
    data = _data(replace(answer, prediction=replace(answer.prediction, graph=longer)))
    assert max(map(len, data["words"]["shapes"])) == MAX_TEXT
