"""Equal calls as one batched call, by hand."""

import pytest
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif.horizontal import FuseHorizontally, batched, result_shape

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
