"""Where a program waits for collectives of host threads: stated, or found from what no recording refutes."""

from collections.abc import Callable

import pytest
from traces import Event, annotation, mark, op, run_of, trace

from gnnperf.graph import ExecutionGraph, build_graph

Program = Callable[[float, float], list[Event]]  # (begin of the step, end of its collective) -> events
ALL_TO_ALL = {"collective": "all_to_all", "in_elements": 64.0, "comm_dtype": "float32"}


def issue(begin: float, end: float, *, asynchronous: bool, name: str = "c10d::alltoall_base_") -> Event:
    """The op that starts an exchange of 64 elements."""
    values = f'["","","","[]","[]","{asynchronous}","-1"]'
    return op(name, begin, end, input_dims="[[8,8],[8,8],[],[],[],[],[]]", input_values=values, **ALL_TO_ALL)


def runs(begin: float, end: float, thread: int = 9) -> Event:
    """The range of a worker thread."""
    return annotation("gloo:all_to_all", begin, end, thread=thread, input_dims="[[8,8]]", **ALL_TO_ALL)


def graph_of(program: Program, ends: list[list[float]]) -> ExecutionGraph:
    """Rank r runs the program once per step; its collective of step k ends `ends[r][k]` after the step began."""
    tables = []
    for rank, of_rank in enumerate(ends):
        events: list[Event] = []
        for k, end in enumerate(of_rank):
            at = 1000.0 * k
            events += [mark(k, at, at + 1000), *program(at, at + end)]
        tables.append(trace(*events, rank=rank, world_size=len(ends), backend="gloo"))
    return build_graph(run_of(*tables))


def waiters(graph: ExecutionGraph) -> set[str]:
    """The gaps and ops that wait for a collective, as op/segment."""
    waits = (graph.edges["relation"] == "waits") & graph.edges["lag_class"].isna()  # not: for a worker thread
    edges = graph.edges[waits.to_numpy()]
    names = [f"{o}/{s}" for o, s in zip(graph.nodes["op_name"], graph.nodes["segment"], strict=True)]
    return {names[i] for i in edges["dst"].tolist()}


def overlapped(at: float, end: float) -> list[Event]:
    """Exchanged while a product runs; what was received is viewed at 300."""
    return [
        issue(at + 10, at + 30, asynchronous=True), runs(at + 20, end), op("aten::mm", at + 60, at + 200),
        op("aten::add", at + 210, at + 220), op("aten::view", at + 300, at + 310, input_dims="[[8,8],[]]"),
    ]  # fmt: skip


def test_a_call_that_states_it_waits_is_waited_for_at_once_whatever_the_recordings_say() -> None:
    def program(at: float, end: float) -> list[Event]:
        return [issue(at + 10, at + 30, asynchronous=False), runs(at + 20, end), op("aten::mm", at + 60, at + 200)]

    graph = graph_of(program, [[90.0, 80.0], [85.0, 85.0]])  # the workers close their ranges late
    assert waiters(graph) == {"aten::mm/T1"}
    assert graph.nodes.loc[graph.nodes["node_type"] == "collective", "latency_us"].tolist() == [40.0, 40.0]  # cut at 60


def test_an_asynchronous_exchange_is_waited_for_before_its_result_is_used() -> None:
    """It ends inside the product in one step, after it in the other: only the gap before the view is left."""
    graph = graph_of(overlapped, [[150.0, 290.0], [150.0, 290.0]])
    assert waiters(graph) == {"aten::view/T1"}
    gaps = graph.nodes[(graph.nodes["op_name"] == "aten::view") & (graph.nodes["segment"] == "T1")]
    assert gaps["blocked_us"].tolist() == [0.0, 70.0] * 2  # from 220 to 290
    assert gaps["latency_us"].tolist() == [80.0, 10.0] * 2


@pytest.mark.parametrize(
    ("ends", "waits"),
    [
        ([[50.0, 55.0], [55.0, 50.0]], "aten::mm/T1"),  # always in the gap after its call
        ([[50.0, 50.0, 50.0, 290.0], [50.0] * 4], "aten::view/T1"),  # once it lasts over two ops: that refutes a place
        ([[290.0, 290.0], [50.0, 50.0]], "aten::view/T1"),  # rank 1, the last to come, refutes nothing: all decide
    ],
)
def test_the_place_that_no_recording_refutes(ends: list[list[float]], waits: str) -> None:
    assert waiters(graph_of(overlapped, ends)) == {waits}


def test_a_range_of_python_code_may_wait() -> None:
    """_EndBackward only waits: 400 us of it are not its own."""

    def program(at: float, end: float) -> list[Event]:
        return [
            issue(at + 10, at + 30, asynchronous=True), runs(at + 20, end), op("aten::mm", at + 60, at + 200),
            op("_EndBackward", at + 210, at + 620), op("aten::view", at + 630, at + 640, input_dims="[[64],[]]"),
        ]  # fmt: skip

    graph = graph_of(program, [[610.0], [610.0]])
    assert waiters(graph) == {"_EndBackward/T5"}
    node = graph.nodes[(graph.nodes["op_name"] == "_EndBackward") & (graph.nodes["segment"] == "T5")].iloc[0]
    assert node[["blocked_us", "latency_us"]].tolist() == [400.0, 10.0]


def test_a_functional_collective_is_waited_for_by_its_own_op_inside_another() -> None:
    """aten::add of a tensor in flight waits, then adds: the wait is a node of its own, the add is computed after it."""

    def program(at: float, end: float) -> list[Event]:
        return [
            op("_c10d_functional::all_to_all_single", at + 10, at + 40, input_dims="[[8,8],[],[],[]]"),
            issue(at + 15, at + 35, asynchronous=True), runs(at + 20, end),
            op("aten::mm", at + 50, at + 150),
            op("aten::add", at + 200, at + 400, input_dims="[[8,8],[8,8],[]]", input_types='["float","float",""]'),
            op("_c10d_functional::wait_tensor", at + 210, at + 330, input_dims="[[8,8]]"),
            op("aten::add", at + 350, at + 390, input_dims="[[8,8],[8,8],[]]", input_types='["float","float",""]'),
        ]  # fmt: skip

    graph = graph_of(program, [[320.0], [325.0]])
    assert waiters(graph) == {"_c10d_functional::wait_tensor/T5"}
    wait = graph.nodes[(graph.nodes["op_name"] == "_c10d_functional::wait_tensor") & (graph.nodes["segment"] == "T5")]
    assert wait["latency_us"].tolist() == [10.0, 5.0]
    added = graph.nodes[(graph.nodes["op_name"] == "aten::add") & (graph.nodes["node_type"] == "compute")]
    assert added["latency_us"].tolist() == [40.0, 40.0]


def test_what_a_worker_thread_does_is_the_collective() -> None:
    """Copies on the worker are no nodes: its idle time between collectives would hold up every faster prediction."""

    def program(at: float, end: float) -> list[Event]:
        return [*overlapped(at, end), op("aten::copy_", end - 5, end - 1, thread=9)]

    graph = graph_of(program, [[150.0, 290.0], [150.0, 290.0]])
    assert set(graph.nodes["thread"].tolist()) <= {0, -1}


def test_a_reduce_scatter_that_gloo_runs_as_an_all_reduce_has_its_issuer() -> None:
    values = '["","","","","False","-1"]'

    def program(at: float, end: float) -> list[Event]:
        stated = {"collective": "reduce_scatter", "in_elements": 64.0}
        return [
            op("c10d::_reduce_scatter_base_", at + 10, at + 30, input_values=values, **stated),
            annotation("gloo:all_reduce", at + 20, end, thread=9, **(ALL_TO_ALL | {"collective": "all_reduce"})),
            op("aten::mm", at + 100, at + 110),
        ]  # fmt: skip

    graph = graph_of(program, [[80.0], [90.0]])
    assert waiters(graph) == {"aten::mm/T1"}
    assert graph.nodes.loc[graph.nodes["node_type"] == "collective", "collective"].tolist() == ["all_reduce"]
    assert (graph.edges["relation"] == "launches").sum() == 2


@pytest.mark.parametrize(
    ("dims", "begin", "without", "waits", "second_end"),
    [
        # A view of 8 x 8 is what takes the result; without one, whatever takes 64 elements may.
        ("[[64],[]]", 295.0, "aten::view", "aten::relu/T1", 290.0),
        ("[[4,16]]", 295.0, "aten::view", "aten::relu/T1", 290.0),
        # It takes 4 x 16, and no recording refutes a wait before it.
        ("[[4,16]]", 225.0, "", "aten::view/T1", 222.0),
    ],
)
def test_a_tensor_of_the_results_size_is_it_where_nothing_takes_its_shape(
    dims: str, begin: float, without: str, waits: str, second_end: float
) -> None:
    def program(at: float, end: float) -> list[Event]:
        relu = op("aten::relu", at + begin, at + begin + 3, input_dims=dims)
        return [*(e for e in overlapped(at, end) if e.name != without), relu]

    assert waiters(graph_of(program, [[150.0, second_end], [150.0, second_end]])) == {waits}


@pytest.mark.parametrize("uses", ["aten::empty_like", "c10d::allreduce_"])
def test_not_everything_of_that_size_needs_the_result(uses: str) -> None:
    def program(at: float, end: float) -> list[Event]:
        first, *rest = overlapped(at, end)
        return [first, op(uses, at + 40, at + 50, input_dims="[[8,8]]"), *rest]

    assert waiters(graph_of(program, [[150.0, 290.0], [150.0, 290.0]])) == {"aten::view/T1"}


def test_a_result_that_nothing_uses_is_not_waited_for() -> None:
    def program(at: float, end: float) -> list[Event]:
        return [event for event in overlapped(at, end) if event.name != "aten::view"]

    graph = graph_of(program, [[290.0], [290.0]])
    assert waiters(graph) == set()
    work = ~graph.nodes["node_type"].isin(["device", "link"])
    assert graph.nodes.loc[work, "latency_us"].notna().all()
