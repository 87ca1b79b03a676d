"""Chains of elementwise ops by hand, on a host thread and on a stream."""

import pytest
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif.fusion import FuseElementwise
from tests.whatif.programs import layer

TENSOR = 4.0 * 8 * 5  # bytes of [8,5]


def on_host() -> ExecutionGraph:
    """[T1|add|T1|mul|T1|relu|T1|linear]; the add reads a bias of 5."""
    host = {"thread": 0}
    gap = {**host, "node_type": NodeType.HOST, "segment": Segment.T1, "latency_us": 1.0}
    op = {**host, "node_type": NodeType.COMPUTE, "device": 0, "family": "elementwise", "dtype": "float32",
          "latency_us": 9.0}  # fmt: skip
    rows = [
        gap,
        {**op, "op_name": "aten::add", "input_dims": "[[8,5],[5],[]]", "flops": 40.0, "bytes": 2 * TENSOR + 20},
        gap,
        {**op, "op_name": "aten::mul", "input_dims": "[[8,5],[8,5]]", "flops": 40.0, "bytes": 3 * TENSOR},
        gap,
        {**op, "op_name": "aten::relu", "input_dims": "[[8,5]]", "flops": 40.0, "bytes": 2 * TENSOR},
        gap,
        {**op, "op_name": "aten::linear", "family": "gemm", "input_dims": "[[8,5],[5,5],[]]", "flops": 400.0,
         "bytes": 420.0},
    ]  # fmt: skip
    return make_graph(rows, [(n, n + 1, Relation.FOLLOWS) for n in range(7)])


def test_inputs_and_result_move_once() -> None:
    """x, bias, y in, relu out: three tensors and the bias; gaps before add and mul are gone."""
    result = FuseElementwise()(on_host())
    nodes = result.graph.nodes
    assert nodes["op_name"].dropna().tolist() == ["aten::relu", "aten::linear"]
    assert len(nodes) == 4
    assert nodes["bytes"][1] == 3 * TENSOR + 20
    assert nodes["flops"][1] == 120.0
    assert nodes["latency_us"].isna().tolist() == [False, True, False, False]
    assert result.touched.tolist() == [False, True, False, False]
    assert result.came_from.tolist() == [4, 5, 6, 7]
    assert "3 ops become 1" in result.unknown[1]
    assert result.graph.edges[["src", "dst"]].to_numpy().tolist() == [[0, 1], [1, 2], [2, 3]]


def test_other_shapes_break_the_chain() -> None:
    graph = on_host()
    dims = graph.nodes["input_dims"].astype(object)
    dims[3] = "[[8,7],[8,7]]"
    changed = ExecutionGraph(**{**graph.__dict__, "nodes": graph.nodes.assign(input_dims=dims.astype("category"))})
    with pytest.raises(InputError, match="no two elementwise ops of one shape in a row"):
        FuseElementwise()(changed)


def on_stream(*, waited: bool) -> ExecutionGraph:
    """Two launches, two kernels; with `waited` the host waits for the first one."""
    call = {"node_type": NodeType.HOST, "thread": 0, "latency_us": 2.0, "op_name": "aten::relu"}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "family": "elementwise", "dtype": "float32",
              "op_name": "aten::relu", "input_dims": "[[8,5]]", "flops": 40.0, "bytes": 2 * TENSOR,
              "latency_us": 9.0}  # fmt: skip
    gap, launch = {**call, "segment": Segment.T1}, {**call, "segment": Segment.T4}
    rows = [gap, launch, gap, launch, gap, kernel, kernel]
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(4)]
    edges += [(5, 6, Relation.FOLLOWS), (1, 5, Relation.LAUNCHES), (3, 6, Relation.LAUNCHES)]
    return make_graph(rows, edges + ([(5, 4, Relation.WAITS)] if waited else []))


def test_the_launch_goes_with_the_kernel() -> None:
    nodes = FuseElementwise()(on_stream(waited=False)).graph.nodes
    assert nodes["bytes"].dropna().tolist() == [2 * TENSOR]
    assert (nodes["segment"] == Segment.T4).sum() == 1


def test_a_kernel_that_is_waited_for_stays_and_the_refusal_names_the_phase() -> None:
    with pytest.raises(InputError, match="in a row"):
        FuseElementwise()(on_stream(waited=True))
    with pytest.raises(InputError, match="in backward"):
        FuseElementwise("backward")(layer(2, 3, 5, 7))
