"""Tables placed one by one are as whole ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnperf.record.launcher import RankFailed, launch
from tests.research.recording.workloads.mixed_checks import TABLES, compare, train, without_a_table
from tests.research.recording.workloads.ranks import results_of


def test_placed_tables_are_as_whole_ones(tmp_path: Path) -> None:
    for rank, result in enumerate(results_of(compare, tmp_path)):
        assert result["vectors"] < 1e-5 < result["magnitude"]
        assert len(result["gradients"]) == sum(table.is_on(rank) for table in TABLES)
        assert max(result["gradients"]) < 1e-5


def test_the_model_learns(tmp_path: Path) -> None:
    losses = results_of(train, tmp_path)[0]["losses"]
    assert losses[4] < losses[0]  # four batches take turns


def test_every_rank_needs_a_table(tmp_path: Path) -> None:
    with pytest.raises(RankFailed):
        launch(without_a_table, (tmp_path,), world_size=2, timeout_s=60)
