"""Execution traces: both schemas, pairing with Kineto, tensor dependencies, refusals."""

from pathlib import Path
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.trace import read_run
from tests.trace import kineto_files as files

# name, rf_id, parent id, inputs, input shapes, input types, outputs; node id = 10 * rf_id
# relu reads tensor 7, which addmm, inside linear, wrote
NODES: tuple[Any, ...] = (
    ("ProfilerStep#5", 1, 2, [], [], [], []),
    ("aten::linear", 2, 10, [[5, 1, 0, 32, 4, "cuda:0"], [6, 2, 0, 8, 4, "cuda:0"], 2],
     [[8, 4], [2, 4], []], ["Tensor(float)", "Tensor(float)", "Int"], [[7, 3, 0, 16, 4, "cuda:0"]]),
    ("aten::addmm", 3, 20, [[5, 1, 0, 32, 4, "cuda:0"], [6, 2, 0, 8, 4, "cuda:0"], [2, 3]],
     [[8, 4], [2, 4], [[], []]], ["Tensor(float)", "Tensor(float)", "GenericList[Int,Int]"],
     [[7, 3, 0, 16, 4, "cuda:0"]]),
    ("aten::relu", 4, 10, [[7, 3, 0, 16, 4, "cuda:0"]], [[8, 2]], ["Tensor(float)"], [[8, 4, 0, 16, 4, "cuda:0"]]),
)  # fmt: skip
THREAD = "[pytorch|profiler|execution_trace|thread]"


def _flat() -> dict[str, Any]:
    nodes = [{"name": THREAD, "id": 2, "rf_id": 0, "parent": 1, "tid": 1, "inputs": [], "outputs": []}]
    for name, rf, parent, inputs, shapes, types, outputs in NODES:
        nodes.append({"name": name, "id": 10 * rf, "rf_id": rf, "parent": parent, "tid": 1, "inputs": inputs,
                      "input_shapes": shapes, "input_types": types, "outputs": outputs,
                      "output_types": ["Tensor(float)"] * len(outputs)})  # fmt: skip
    return {"schema": "1.0.1", "pid": 100, "nodes": nodes}


def _with_attributes() -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for name, rf, parent, inputs, shapes, types, outputs in NODES:
        attrs = [{"name": "rf_id", "type": "uint64", "value": rf}, {"name": "tid", "type": "uint64", "value": 1},
                 {"name": "op_schema", "type": "string", "value": "x"}]  # fmt: skip
        nodes.append({"id": 10 * rf, "name": name, "ctrl_deps": parent, "attrs": attrs,
                      "inputs": {"values": inputs, "shapes": shapes, "types": types},
                      "outputs": {"values": outputs, "types": ["Tensor(float)"] * len(outputs)}})  # fmt: skip
    return {"schema": "1.1.0-chakra.0.0.4", "pid": 100, "nodes": nodes}


def _kineto(key: str, offset: int) -> dict[str, Any]:
    """The step without shapes; ops are numbered by `key`, apart from the execution trace by `offset`."""
    events = []
    for event in files.step_events():
        args = {k: v for k, v in event["args"].items() if not k.startswith("Input")}
        if event["cat"] in ("cpu_op", "user_annotation"):
            args[key] = args["External id"] + offset
        events.append(event | {"args": args})
    return files.document(events)


@pytest.mark.parametrize("schema", [_flat, _with_attributes])
@pytest.mark.parametrize(("key", "offset"), [("Record function id", 0), ("Ev Idx", -1), ("External id", 100)])
def test_shapes_and_feeds_come_from_the_execution_trace(tmp_path: Path, schema: Any, key: str, offset: int) -> None:
    files.write(tmp_path / "rank_0.json", _kineto(key, offset))
    files.write(tmp_path / "et_0.json", schema())
    table = read_run(tmp_path).tables[0]
    assert table.meta.source_format == "execution_trace+kineto"
    by_name = table.events.set_index("name")
    assert by_name.loc["aten::addmm", "input_dims"] == "[[8,4],[2,4],[]]"
    assert by_name.loc["aten::addmm", "input_types"] == '["float","float","ScalarList"]'
    assert by_name.loc["aten::addmm", "input_values"] == '["","","[2, 3]"]'
    assert by_name.loc["aten::linear", "input_values"] == '["","","2"]'
    assert table.feeds.to_numpy().tolist() == [
        [by_name.loc["aten::addmm", "event_id"], by_name.loc["aten::relu", "event_id"]]
    ]
    assert not any("execution trace" in sentence for sentence in table.meta.warnings)  # all ops were matched


def test_an_execution_trace_of_one_step_reports_of_every_step(tmp_path: Path) -> None:
    """Three steps of 4 numbers each, 1..12; the execution trace is of a later one, numbered 101..104."""
    steps = []
    for step in range(3):
        for event in _kineto("Ev Idx", 4 * step)["traceEvents"]:
            steps.append(event | {"ts": event["ts"] + 200 * step, "name": event["name"].replace("#5", f"#{5 + step}")})
    flat = _flat()
    ops = [node | {"rf_id": node["rf_id"] + 100} for node in flat["nodes"][2:]]
    files.write(tmp_path / "rank_0.json", files.document(steps))
    files.write(tmp_path / "et_0.json", flat | {"nodes": [flat["nodes"][0], *ops]})
    table = read_run(tmp_path).tables[0]
    name, start_us = table.events["name"].astype(object), table.events["start_ns"] / 1000
    assert [
        (name[a], start_us[a], name[b], start_us[b]) for a, b in table.feeds.to_numpy()
    ] == [("aten::addmm", 15.0 + at, "aten::relu", 60.0 + at) for at in (0, 200, 400)]  # fmt: skip
    relus = table.events[(name == "aten::relu").to_numpy()]
    assert relus["input_dims"].tolist() == ["[[8,2]]"] * 3


def test_two_paths_of_one_run_are_paired_without_names(tmp_path: Path) -> None:
    kineto = files.write(tmp_path / "a.json", _kineto("Record function id", 0))
    trace = files.write(tmp_path / "b.json", _flat(), packed=True)
    assert len(read_run([kineto, trace]).tables[0].feeds) == 1


def test_an_execution_trace_of_another_run_is_not_used(tmp_path: Path) -> None:
    other = _flat()
    for node in other["nodes"]:
        node["name"] = "other::" + node["name"]
    files.write(tmp_path / "rank_0.json", _kineto("Record function id", 0))
    files.write(tmp_path / "et_0.json", other)
    table = read_run(tmp_path).tables[0]
    assert table.meta.source_format == "kineto" and len(table.feeds) == 0
    assert any("is not used, because 0.0% of its ops were matched" in w for w in table.meta.warnings)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("chakra.0.et", b"\x10\n\x0e\n\x06schema", "Chakra protobuf"),
        ("final.json", b'{\n "attr": [{"name": "schema"}]\n}{\n "id": "1"}', "concatenated Chakra JSON"),
        ("graph.json", b'{"workload_graph": [{"Id": 216}]}', "Chakra workload graph"),
        ("nodes.json", b'{"nodes": [{"id": 1}], "edges": []}', "is JSON but not a trace"),
        ("et.json", b'{"schema": "1.0.1", "nodes": [{"name": 5}]}', "no op that can be read"),
        ("et.json", b'{"schema": "1.0.1", "nodes": []}', "holds no op"),
        ("et_0.json", _flat(), "has no times.*Kineto file of the same run"),
    ],
)
def test_other_formats_are_refused_with_one_sentence(tmp_path: Path, name: str, content: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_run(files.write(tmp_path / name, content))
