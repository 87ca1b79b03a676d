"""Fusion by hand: equal calls as one batched call, and chains of elementwise ops as one op."""

import pytest
from toys import make_graph

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif.fusion import FuseElementwise
from gnnperf.whatif.horizontal import FuseHorizontally, batched, result_shape
from tests.whatif.programs import layer

LINEAR, GELU, STACK = (
    ("aten::linear", "gemm", "[[8,5],[7,5],[7]]"),
    ("aten::gelu", "elementwise", "[[8,7],[]]"),
    ("aten::stack", "copy", "[[[8,7],[8,7],[8,7]],[]]"),
)
RELU = ("aten::relu", "elementwise", "[[8,5]]")


def on_host(*calls: tuple[str, str, str], feeds: tuple[tuple[int, int], ...] = ()) -> ExecutionGraph:
    """[T1|call] for each; `feeds`: (producer, consumer) numbers of calls."""
    rows: list[dict[str, object]] = []
    for name, family, dims in calls:
        host = {"thread": 0, "device": 0}
        rows += [
            {**host, "node_type": NodeType.HOST, "segment": Segment.T1, "latency_us": 1.0},
            {**host, "node_type": NodeType.COMPUTE, "op_name": name, "family": family, "input_dims": dims,
             "dtype": "float32", "flops": 100.0, "bytes": 40.0, "latency_us": 9.0},
        ]  # fmt: skip
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(len(rows) - 1)]
    edges += [(2 * a + 1, 2 * b + 1, Relation.FEEDS) for a, b in feeds]
    return make_graph(rows, edges)


def names(graph: ExecutionGraph) -> list[str]:
    return graph.nodes["op_name"].dropna().tolist()


def test_three_layers_side_by_side() -> None:
    """Host overheads of two calls are gone, the work of all three is one product."""
    result = FuseHorizontally()(on_host(LINEAR, LINEAR, LINEAR, STACK))
    nodes = result.graph.nodes
    assert names(result.graph) == ["aten::baddbmm", "aten::stack"]
    assert nodes["input_dims"][1] == "[[3,1,7],[3,8,5],[3,5,7]]"
    assert (nodes["flops"][1], nodes["bytes"][1]) == (300.0, 120.0)
    assert nodes["latency_us"].isna().tolist() == [False, True, False, False]
    assert (nodes["segment"] == Segment.T1).sum() == 2
    assert result.came_from.tolist() == [4, 5, 6, 7]
    assert result.touched.tolist() == [True, True, False, False]
    assert result.result == ("3 calls become 1: aten::linear (3)",)
    assert any("no feeds" in sentence for sentence in result.unknown)


def test_layers_on_top_of_each_other_stay_apart() -> None:
    with pytest.raises(InputError, match="known not to need each other"):
        FuseHorizontally()(on_host(LINEAR, GELU, LINEAR, GELU))


def test_tensors_that_are_followed_decide() -> None:
    """Each relu takes what the one before makes, or none does: shapes only cannot tell."""
    with pytest.raises(InputError, match="known not to"):
        FuseHorizontally()(on_host(RELU, RELU, RELU))
    result = FuseHorizontally()(on_host(RELU, RELU, RELU, STACK, feeds=((0, 3), (1, 3), (2, 3))))
    assert names(result.graph) == ["aten::relu", "aten::stack"]
    assert result.graph.nodes["input_dims"][1] == "[[24,5]]"
    feeds = result.graph.edges[result.graph.edges["relation"] == Relation.FEEDS]
    assert {tuple(pair) for pair in feeds[["src", "dst"]].to_numpy()} == {(1, 3)}
    with pytest.raises(InputError, match="known not to"):
        FuseHorizontally()(on_host(RELU, RELU, RELU, feeds=((0, 1), (1, 2))))


def test_a_taker_in_between_cuts_the_group() -> None:
    result = FuseHorizontally()(on_host(LINEAR, LINEAR, GELU, LINEAR, LINEAR))
    assert names(result.graph) == ["aten::baddbmm", "aten::gelu", "aten::baddbmm"]
    assert result.graph.nodes["flops"].dropna().tolist() == [200.0, 100.0, 200.0]


def test_models_that_are_reported_fuse_call_by_call() -> None:
    """Two models of two layers: each layer of both is one call."""
    result = FuseHorizontally(models=2)(on_host(LINEAR, GELU, LINEAR, GELU, STACK))
    assert names(result.graph) == ["aten::baddbmm", "aten::gelu", "aten::stack"]
    assert result.graph.nodes["input_dims"].dropna().tolist()[1] == "[[16,7],[]]"
    assert result.graph.nodes["flops"].dropna().tolist() == [200.0, 200.0, 100.0]
    assert "whether the 2 models share anything: the edit states that they do not" in result.unknown
    with pytest.raises(InputError):
        FuseHorizontally(models=3)(on_host(LINEAR, GELU, LINEAR, GELU))


def test_one_op_of_a_phase() -> None:
    graph = on_host(LINEAR, LINEAR, STACK)
    assert FuseHorizontally(op="aten::linear", phase="forward")(graph).graph.num_nodes == 4
    with pytest.raises(InputError, match="of aten::conv2d"):
        FuseHorizontally(op="aten::conv2d")(graph)
    with pytest.raises(InputError, match="in backward"):
        FuseHorizontally(phase="backward")(graph)


def test_a_call_that_another_thread_waits_for_stays() -> None:
    graph = on_host(LINEAR, LINEAR, LINEAR, STACK)
    rows = [(1, 6, Relation.WAITS)]
    edges = [(int(a), int(b), str(r)) for a, b, r in graph.edges[["src", "dst", "relation"]].to_numpy()]
    tied = make_graph(graph.nodes.to_dict("records"), edges + rows)
    assert names(FuseHorizontally()(tied).graph) == ["aten::linear", "aten::baddbmm", "aten::stack"]


def on_stream() -> ExecutionGraph:
    """Two launches, two equal kernels, then one that takes both."""
    host = {"node_type": NodeType.HOST, "thread": 0, "latency_us": 2.0, "input_dims": "[[8,5],[5,7]]"}
    gap, launch = {**host, "segment": Segment.T1}, {**host, "op_name": "aten::mm", "segment": Segment.T4}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "op_name": "aten::mm", "family": "gemm",
              "input_dims": "[[8,5],[5,7]]", "flops": 560.0, "bytes": 300.0, "latency_us": 9.0}  # fmt: skip
    edges = [(0, 1, Relation.FOLLOWS), (1, 2, Relation.FOLLOWS), (2, 3, Relation.FOLLOWS), (4, 5, Relation.FOLLOWS),
             (1, 4, Relation.LAUNCHES), (3, 5, Relation.LAUNCHES)]  # fmt: skip
    return make_graph([gap, launch, gap, launch, kernel, kernel], edges)


def test_kernels_go_with_their_launches() -> None:
    nodes = FuseHorizontally()(on_stream()).graph.nodes
    assert nodes["segment"].dropna().tolist() == [Segment.T1, Segment.T4]
    assert nodes["flops"].dropna().tolist() == [1120.0]
    assert nodes["input_dims"].dropna().tolist()[-1] == "[[2,8,5],[2,5,7]]"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("aten::conv2d", ((8, 3, 9, 9), (6, 3, 3, 3), (6,)), ("aten::conv2d", ((8, 12, 9, 9), (24, 3, 3, 3), (24,)))),
        ("aten::batch_norm", ((8, 3, 9, 9), (3,), (3,)), ("aten::batch_norm", ((8, 12, 9, 9), (12,), (12,)))),
        ("aten::addmm", ((7,), (8, 5), (5, 7)), ("aten::baddbmm", ((4, 1, 7), (4, 8, 5), (4, 5, 7)))),
        ("aten::linear", ((2, 8, 5), (7, 5), ()), ("aten::bmm", ((4, 16, 5), (4, 5, 7)))),
        ("aten::embedding", ((100, 6), (8, 2)), ("aten::embedding", ((400, 6), (32, 2)))),
        ("aten::layer_norm", ((8, 5), (), (5,), (5,)), ("aten::layer_norm", ((32, 5), (), (5,), (5,)))),
        ("aten::_fused_sgd_", (((5, 2), (5,)),), ("aten::_fused_sgd_", (((20, 2), (20,)),))),
    ],
)
def test_four_as_one(name: str, arguments: tuple, expected: tuple) -> None:  # type: ignore[type-arg]
    assert batched(name, arguments, 4) == expected


def test_results_that_shapes_tell() -> None:
    assert result_shape("aten::conv2d", ((8, 3, 9, 9), (6, 3, 3, 3))) == (8, 6, -1, -1)
    assert result_shape("aten::embedding_bag", ((100, 6), (20,), (8,))) == (8, 6)
    assert result_shape("aten::relu", ((8, 6),)) is None


TENSOR = 4.0 * 8 * 5  # bytes of [8,5]


def elementwise_on_host() -> ExecutionGraph:
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
    result = FuseElementwise()(elementwise_on_host())
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
    graph = elementwise_on_host()
    dims = graph.nodes["input_dims"].astype(object)
    dims[3] = "[[8,7],[8,7]]"
    changed = ExecutionGraph(**{**graph.__dict__, "nodes": graph.nodes.assign(input_dims=dims.astype("category"))})
    with pytest.raises(InputError, match="no two elementwise ops of one shape in a row"):
        FuseElementwise()(changed)


def elementwise_on_stream(*, waited: bool) -> ExecutionGraph:
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
    nodes = FuseElementwise()(elementwise_on_stream(waited=False)).graph.nodes
    assert nodes["bytes"].dropna().tolist() == [2 * TENSOR]
    assert (nodes["segment"] == Segment.T4).sum() == 1


def test_a_kernel_that_is_waited_for_stays_and_the_refusal_names_the_phase() -> None:
    with pytest.raises(InputError, match="in a row"):
        FuseElementwise()(elementwise_on_stream(waited=True))
    with pytest.raises(InputError, match="in backward"):
        FuseElementwise("backward")(layer(2, 3, 5, 7))
