"""Tables of recorded runs placed otherwise: against sizes that follow from the placement, and against the recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.tables import Placed, Placement, Split
from gnnperf.graph import load_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif.reshard import PlaceTables
from gnnperf.whatif.reshard.infer import PlaceTable, infer
from gnnperf.whatif.reshard.units import index_traffic, vector_traffic

DATASET = Path("datasets/cpu-sharding")
EVERYBODY = (0, 1)
SHAPED = ["rank", "step", "node_type", "op_name", "input_dims", "flops", "bytes", "message_bytes"]


@pytest.fixture(scope="module")
def graph() -> ExecutionGraph:
    """Seven tables: whole ones on both ranks, one by row, one by column."""
    (run,) = DATASET.glob("mixed_dlrm_p00_*")
    return load_graph(run / "1").for_predictors()


def placed(graph: ExecutionGraph, after: Placement) -> ExecutionGraph:
    model, before = infer(graph)
    return PlaceTables(model.tables, before, after, model.batch)(graph).graph.validate()


def shaped(graph: ExecutionGraph) -> list[tuple[object, ...]]:
    """What every node is, in order."""
    table = graph.nodes[SHAPED].astype(object)
    return list(table.where(table.notna(), None).itertuples(index=False, name=None))


def test_tables_and_places_are_read_off_the_graph(graph: ExecutionGraph) -> None:
    model, places = infer(graph)
    assert (model.ranks, model.batch) == (2, 256)
    assert sorted((t.rows, t.dim, round(t.pooling)) for t in model.tables) == sorted(
        [
            (500, 128, 20),
            (200000, 8, 1),
            (10000, 128, 40),
            (10000, 128, 20),
            (2000, 128, 20),
            (2000, 8, 1),
            (10000, 128, 10),
        ]
    )
    kinds = [place.split for place in places]
    assert kinds.count(Split.ROW) == kinds.count(Split.COLUMN) == 1


def test_the_recorded_placement_changes_nothing(graph: ExecutionGraph) -> None:
    model, places = infer(graph)
    edited = PlaceTables(model.tables, places, places, model.batch)(graph)
    assert shaped(edited.graph) == shaped(graph)
    np.testing.assert_array_equal(edited.graph.nodes["latency_us"], graph.nodes["latency_us"])


def test_waits_for_the_step_before_keep_their_ends(graph: ExecutionGraph) -> None:
    """A wait of the last work for the first one, by content, in a step in which a table moves."""
    one = graph.step(graph.steps[1].step)
    works = np.flatnonzero((one.nodes["thread"] == 0).to_numpy())[[0, -1]]
    one = replace(one, cross_step=works[::-1].reshape(2, 1))
    _, places = infer(one)
    number = next(t for t, place in enumerate(places) if place == Placed(Split.TABLE, (0,)))
    edited = placed(one, (*places[:number], Placed(Split.TABLE, (1,)), *places[number + 1 :]))
    assert not np.array_equal(edited.nodes["rank"], one.nodes["rank"])
    assert edited.cross_step is not None
    keys = [g.nodes["content_key"].to_numpy()[g.cross_step] for g in (one, edited) if g.cross_step is not None]
    np.testing.assert_array_equal(keys[0], keys[1])


def test_a_moved_table_takes_its_work_along(graph: ExecutionGraph) -> None:
    _, places = infer(graph)
    number = next(t for t, place in enumerate(places) if place == Placed(Split.TABLE, (0,)))
    after = (*places[:number], Placed(Split.TABLE, (1,)), *places[number + 1 :])
    edited = placed(graph, after)
    for rank, change in ((0, -1), (1, 1)):
        counts = [int(((g.nodes["rank"] == rank) & (g.nodes["op_name"] == "aten::embedding_bag")
                       & (g.nodes["node_type"] == "compute")).sum()) for g in (graph, edited)]  # fmt: skip
        assert counts[1] - counts[0] == change * len(graph.steps)
    flops = [g.nodes["flops"].sum() for g in (graph, edited)]
    assert flops[1] == pytest.approx(flops[0])  # the same work, elsewhere


def test_messages_follow_from_places(graph: ExecutionGraph) -> None:
    model, _ = infer(graph)
    after = tuple(Placed(Split.TABLE, (t % 2,)) for t in range(len(model.tables)))
    sent = placed(graph, after).nodes.query("collective == 'all_to_all' and node_type == 'collective'")
    expected = [index_traffic(model, after).even * 8, *[vector_traffic(model, after).even * 4] * 2]
    assert sent["message_bytes"].tolist()[:3] == pytest.approx(expected)


def test_a_kind_that_is_no_longer_shown_is_refused(graph: ExecutionGraph) -> None:
    model, before = infer(graph)
    after = tuple(Placed(Split.ROW, EVERYBODY) if place.split is Split.COLUMN else place for place in before)
    there = PlaceTables(model.tables, before, after, model.batch)(graph).graph
    rows = {t for t, place in enumerate(after) if place.split is Split.ROW}
    assert len(rows) == 2
    with pytest.raises(InputError, match="by column"):  # nothing shows any more what a table by column does
        PlaceTables(model.tables, after, before, model.batch)(there)


def test_one_table_by_number(graph: ExecutionGraph) -> None:
    _, places = infer(graph)
    number = next(t for t, place in enumerate(places) if place == Placed(Split.TABLE, (0,)))
    edited = PlaceTable(number, "table", 1)(graph)
    after = (*places[:number], Placed(Split.TABLE, (1,)), *places[number + 1 :])
    assert shaped(edited.graph) == shaped(placed(graph, after))
    assert not any("all rows alike" in sentence for sentence in edited.unknown)
    assert "all rows alike" in PlaceTable(number, "row")(graph).unknown[-1]


@pytest.mark.parametrize(
    ("settings", "statement"),
    [
        ({"table": 0, "split": "diagonal"}, "diagonal"),
        ({"table": 0, "split": "row", "rank": 1}, "rank of a table"),
        ({"table": 0}, "rank of a table"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], statement: str) -> None:
    with pytest.raises(InputError, match=statement):
        PlaceTable(**settings)  # type: ignore[arg-type]


def test_an_unknown_table_is_answered_with_all(graph: ExecutionGraph) -> None:
    with pytest.raises(InputError, match="no table 9") as error:
        PlaceTable(9, "table", 0)(graph)
    assert "200000 x 8, rank 1" in str(error.value.allowed)


def test_other_tables_than_recorded_are_refused(graph: ExecutionGraph) -> None:
    model, places = infer(graph)
    other = (replace(model.tables[0], rows=7), *model.tables[1:])
    with pytest.raises(InputError, match="looks up"):
        PlaceTables(other, places, places, model.batch)(graph)
    with pytest.raises(InputError, match="an exchange of"):
        PlaceTables(model.tables, places, places, 2 * model.batch)(graph)
