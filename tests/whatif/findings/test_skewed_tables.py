"""Tables on one rank that hold the others up: recorded runs whose placement is known, and steps written down here."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.tables import Placed, Split, Table
from gnnperf.graph import load_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import default_cluster, load_device
from gnnperf.predict.assembly import choose_step
from gnnperf.schedule import NUM_UNROLLED
from gnnperf.whatif.findings import Observed, find, measured_step
from gnnperf.whatif.findings.skewed_tables import by_lookups, skewed_tables
from gnnperf.whatif.reshard import Model, PlaceTables
from gnnperf.whatif.reshard.infer import infer
from tests.whatif.findings.steps import Steps

SHARDING, GLOO = Path("datasets/cpu-sharding"), Path("datasets/cpu-gloo")
EVERYBODY = (0, 1)


def _recorded(run: Path) -> ExecutionGraph:
    graph = load_graph(run / "1")
    return graph.step(choose_step(graph, None).step).for_predictors()


def _observed(graph: ExecutionGraph) -> Observed:
    cluster = default_cluster(load_device("cpu_generic"))
    return measured_step(graph, NUM_UNROLLED, cluster, AnalyticPredictor())


@pytest.fixture(scope="module", name="skewed")
def _skewed() -> ExecutionGraph:
    """Seven tables on two ranks, of which rank 0 looks up 2.7 times as much."""
    return _recorded(next(SHARDING.glob("mixed_dlrm_p00_*")))


def test_the_rank_with_the_tables_is_named_with_its_load_and_the_gain_of_another_place(skewed: ExecutionGraph) -> None:
    step = _observed(skewed)
    (result,) = find(step, (skewed_tables,))
    assert result.cause == "rank 0 holds the embedding tables with most work, and the others wait for it"
    assert result.evidence[1] == "it reads and writes 111 MB for them, the others 41.7 MB in the median"
    assert "2.7 times the numbers of the others" in result.evidence[2]
    assert result.edit == "{place:{table:4,rank:1}}"
    model, before = infer(skewed)
    assert before[4] == Placed(Split.TABLE, (0,))
    after = (*before[:4], Placed(Split.TABLE, (1,)), *before[5:])
    edited = PlaceTables(model.tables, before, after, model.batch)(skewed)
    assert result.gain_us == pytest.approx(step.step_time_us - step.step_time_of(edited))
    assert result.gain_us is not None
    assert result.gain_us > 0.02 * step.step_time_us


def test_dealt_by_lookups_the_load_is_nearly_even(skewed: ExecutionGraph) -> None:
    model, before = infer(skewed)
    ratios = []
    for placement in (before, by_lookups(model, before)):
        parts = (model.parts(placement, rank) for rank in EVERYBODY)
        loads = [sum(part.lookups * part.columns for part in own) for own in parts]
        ratios.append(max(loads) / min(loads))
    assert ratios == pytest.approx([2.66, 1.20], abs=0.01)


def test_ranks_with_equal_tables_have_none() -> None:
    """One of them takes longer in this recording, for as many bytes: that is no placement's fault."""
    run = _recorded(GLOO / "dlrm_t4_r100k_d32_b256_acc2_x2_lo")
    step = _observed(run)
    works = step.on_device & (run.nodes["family"] == "embedding").to_numpy()
    us = [step.latency_us[works & (step.rank == rank)].sum() for rank in (0, 1)]
    assert abs(us[0] - us[1]) > 0.05 * step.step_time_us
    assert find(step, (skewed_tables,)) == ()


def _lookups(*us: float) -> Observed:
    """Ranks that look up for so long, a MB per us, and meet in an exchange of 10 us."""
    step = Steps(len(us))
    for rank, own in enumerate(us):
        step.work(own, rank, family="embedding", bytes=own * 1e6, op_name="fbgemm::lookup")
    step.transfer(10.0, kind="all_to_all")
    return step.observed()


def test_where_no_tables_are_shown_an_even_division_bounds_the_gain() -> None:
    """40, 100 and 40: the mean is 60."""
    (result,) = find(_lookups(40.0, 100.0, 40.0), (skewed_tables,))
    assert result.cause.startswith("rank 1 ")
    assert (result.gain_us, result.at_most) == (pytest.approx(40.0), True)
    assert result.evidence == (
        "rank 1 works 100 us for embedding tables, the others 40 us in the median; it comes 60 us later to collectives "
        "than the others, in sum",
        "it reads and writes 100 MB for them, the others 40 MB in the median",
    )


def test_equal_lookups_or_one_rank_or_no_one_who_waits() -> None:
    assert find(_lookups(50.0, 51.0), (skewed_tables,)) == ()
    assert find(_lookups(50.0), (skewed_tables,)) == ()
    step = Steps(2)
    for rank, us in enumerate((100.0, 40.0)):
        step.work(us, rank, family="embedding", bytes=us * 1e6)
        step.work(100.0 - us, rank)
    step.transfer(10.0)
    assert find(step.observed(), (skewed_tables,)) == ()  # the other rank has more of other work


def test_tables_go_to_the_emptiest_rank_and_stay_where_it_is_as_good() -> None:
    tables = tuple(Table(str(t), 1000, dim) for t, dim in enumerate((64, 32, 32, 16)))
    model = Model(tables, 2, 8)
    whole = tuple(Placed(Split.TABLE, (rank,)) for rank in (0, 0, 0, 1))
    assert [placed.ranks for placed in by_lookups(model, whole)] == [(0,), (1,), (1,), (1,)]
    even = tuple(Placed(Split.TABLE, (rank,)) for rank in (1, 0, 0, 1))
    assert [placed.ranks for placed in by_lookups(model, even)] == [(1,), (0,), (0,), (1,)]
    divided = (Placed(Split.ROW, EVERYBODY), *whole[1:])
    assert by_lookups(model, divided)[0] == divided[0]
    assert [placed.ranks for placed in by_lookups(model, divided)[1:]] == [(0,), (1,), (1,)]
