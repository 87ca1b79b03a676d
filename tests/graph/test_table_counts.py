"""What a run's card counts of its embedding tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from traces import mark, op, run_of, trace

from gnnperf.core.errors import InputError
from gnnperf.graph import build_graph, read_graph, write_graph
from gnnperf.graph.execution_graph import TableCounts, lookups_held, table_counts

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
