"""Tables placed one by one are as whole ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.record.launcher import RankFailed, launch
from tests.research.recording.workloads.mixed_checks import TABLES, compare, train, without_a_table


def test_placed_tables_are_as_whole_ones(tmp_path: Path) -> None:
    launch(compare, (tmp_path,), world_size=2, timeout_s=120)
    for rank in range(2):
        result = json.loads((tmp_path / f"rank_{rank}.json").read_text())
        assert result["vectors"] < 1e-5 < result["magnitude"]
        assert len(result["gradients"]) == sum(table.is_on(rank) for table in TABLES)
        assert max(result["gradients"]) < 1e-5


def test_the_model_learns(tmp_path: Path) -> None:
    launch(train, (tmp_path,), world_size=2, timeout_s=120)
    losses = json.loads((tmp_path / "rank_0.json").read_text())["losses"]
    assert losses[4] < losses[0]  # four batches take turns


def test_every_rank_needs_a_table(tmp_path: Path) -> None:
    with pytest.raises(RankFailed):
        launch(without_a_table, (tmp_path,), world_size=2, timeout_s=60)
