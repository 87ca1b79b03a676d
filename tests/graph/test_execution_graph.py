"""What a step waits for of the step before, in a step that is scheduled several times in a row."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toys import make_graph
from traces import mark, op, run_of, trace

from gnnperf.core import Evidence, InputError, NodeType, Relation, Segment, schema
from gnnperf.graph import Isolated, build_graph, read_graph, write_graph
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel, TableCounts, lookups_held, table_counts
from gnnperf.hardware.contention import Contention
from gnnperf.schedule import schedule, schedule_with_contention

SYNC, LAUNCH, KERNEL = 1, 2, 3  # content keys


def two_steps() -> ExecutionGraph:
    """Per step: a sync (10 us), a launch (10 us), a kernel (100 us). The sync of step 1 waits for step 0's kernel."""
    rows: list[dict[str, object]] = []
    for step in (0, 1):
        host = {"node_type": NodeType.HOST, "segment": Segment.T4, "thread": 0, "step": step, "latency_us": 10.0}
        rows += [
            {**host, "content_key": SYNC}, {**host, "content_key": LAUNCH},
            {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "step": step, "latency_us": 100.0,
             "content_key": KERNEL},
        ]  # fmt: skip
    edges = [
        (0, 1, Relation.FOLLOWS), (1, 2, Relation.LAUNCHES), (1, 3, Relation.FOLLOWS), (3, 4, Relation.FOLLOWS),
        (4, 5, Relation.LAUNCHES), (2, 5, Relation.FOLLOWS), (2, 3, Relation.WAITS),
    ]  # fmt: skip
    labels = tuple(StepLabel(s, f"ProfilerStep#{s}", None, 110.0, (0.0,), (110.0,)) for s in (0, 1))
    return make_graph(rows, edges, steps=labels)  # type: ignore[arg-type]


def crossing(graph: ExecutionGraph) -> np.ndarray:
    """The pairs of its steps' boundary, [2, num_pairs]."""
    assert graph.cross_step is not None
    return graph.cross_step


@pytest.mark.parametrize("step", [0, 1])
def test_a_wait_across_the_boundary_becomes_a_pair_of_the_step(step: int) -> None:
    """The first step has none before it: it takes the boundary after it."""
    assert crossing(two_steps().step(step)).tolist() == [[2], [0]]


def test_a_step_in_a_row_waits_for_the_copy_before() -> None:
    """The kernel starts 10 us after the sync's start, which waits for the kernel before: 110. Without the wait, 100."""
    graph = two_steps().step(1)
    latency, lag = graph.nodes["latency_us"].to_numpy(), np.zeros(len(graph.edges))
    assert schedule(graph, latency, lag, num_unrolled=3).period_us == 110.0
    isolated = Isolated(np.ones(graph.num_nodes, dtype=bool), Contention(cores_per_node=1.0))
    result = schedule_with_contention(graph, latency, lag, isolated, num_unrolled=3)
    assert result.schedule.period_us == 120.0  # the sync, then launch and kernel on one core: 10 + 110
    without = replace(graph, cross_step=np.zeros((2, 0), dtype=np.int64))
    assert schedule(without, latency, lag, num_unrolled=3).period_us == 100.0


def test_work_outside_of_whole_steps_is_no_step_before() -> None:
    graph = two_steps()
    hardware = graph.nodes.iloc[[0]].assign(node_id=6, step=-1, node_type="device")
    types = graph.nodes["node_type"].cat.add_categories(["device"])
    nodes = pd.concat([graph.nodes.assign(node_type=types), hardware], ignore_index=True)
    nodes = nodes.astype({c.name: c.dtype for c in schema.NODE_COLUMNS})
    assert crossing(replace(graph, nodes=nodes).step(0)).tolist() == [[2], [0]]


def test_what_was_inferred_from_time_is_not_transferred() -> None:
    graph = two_steps()
    waits = (graph.edges["relation"] == Relation.WAITS).to_numpy()
    evidence = np.where(waits, str(Evidence.TIMING), graph.edges["evidence"].astype(object))
    edges = graph.edges.assign(evidence=evidence).astype({"evidence": "category"})
    assert crossing(replace(graph, edges=edges).step(1)).shape == (2, 0)


def test_an_end_that_the_step_does_not_have_is_left_out() -> None:
    graph = two_steps()
    key = graph.nodes["content_key"].to_numpy(copy=True)
    key[2] = 99  # the kernel of step 0 is of another kind
    assert crossing(replace(graph, nodes=graph.nodes.assign(content_key=key)).step(1)).shape == (2, 0)


def test_a_step_by_itself_has_the_same_nodes_and_edges_and_no_wait_across_the_boundary() -> None:
    graph = two_steps()
    isolated, whole = graph.by_itself(1), graph.step(1)
    pd.testing.assert_frame_equal(isolated.nodes, whole.nodes)
    pd.testing.assert_frame_equal(isolated.edges, whole.edges)
    assert isolated.steps == whole.steps
    assert isolated.cross_step is None
    assert crossing(whole).shape == (2, 1)


# --- what a run's card counts of its embedding tables -----------------------------------------------------------------


ENTRY = {"table": 0, "rows": 1000, "dim": 16, "pooling_factor": 4.0, "batches": 4, "lookups_per_batch": 65,
         "distinct_rows_per_batch": 50.0, "reuse_histogram": [160, 50]}  # fmt: skip


def card(*by_rank: list[dict[str, Any]]) -> dict[str, object]:
    return {"ranks": [{"rank": rank, "index_statistics": entries} for rank, entries in enumerate(by_rank)]}


def test_tables_of_one_size_are_added_up() -> None:
    longer, other = {**ENTRY, "table": 1, "reuse_histogram": [240, 0, 5]}, {**ENTRY, "rows": 77}
    assert table_counts(card([ENTRY, other], [longer])) == (
        TableCounts(1000, 16, 65, 8, (400, 50, 5)),
        TableCounts(77, 16, 65, 4, (160, 50)),
    )


@pytest.mark.parametrize("result", [None, {}, {"ranks": []}, {"ranks": [{"rank": 0}]}])
def test_a_card_without_counts_is_none(result: dict[str, object] | None) -> None:
    assert table_counts(result) == ()


@pytest.mark.parametrize(
    "change",
    [{"rows": 0}, {"dim": "16"}, {"batches": True}, {"reuse_histogram": []}, {"reuse_histogram": [0]},
     {"reuse_histogram": [1.5]}, {"lookups_per_batch": None}],
)  # fmt: skip
def test_bad_counts_are_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="rank 1, index_statistics 2: counts of a table are"):
        table_counts(card([ENTRY], [ENTRY, {**ENTRY, **change}]))
    with pytest.raises(InputError, match="index_statistics is no list"):
        table_counts({"ranks": [{"rank": 0, "index_statistics": 3}]})


def test_lookups_that_a_histogram_can_hold() -> None:
    assert lookups_held([10, 2, 1, 1]) == (10 + 4 + 3 + 5, 10 + 4 + 4 + 8)  # once, twice, 3 to 4, 5 to 8


@pytest.mark.parametrize("change", [{"lookups_per_batch": 66}, {"lookups_per_batch": 64}, {"rows": 52}])
def test_counts_that_contradict_each_other_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="holds 210 rows and 260 to 260 lookups"):
        table_counts(card([{**ENTRY, **change}]))


def test_a_graph_transfers_them_to_disk_and_back(tmp_path: Path) -> None:
    run = replace(run_of(trace(mark(0, 0, 100), op("aten::mm", 5, 30))), card=card([ENTRY]))
    graph = build_graph(run)
    assert graph.tables == (TableCounts(1000, 16, 65, 4, (160, 50)),)
    write_graph(graph, tmp_path / "graph")
    assert read_graph(tmp_path / "graph").tables == graph.step(0).tables == graph.tables
