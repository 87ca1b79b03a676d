from __future__ import annotations

import math
from pathlib import Path

from tests.research.recording.workloads.one_rank import PROGRAMS, isolated
from tests.research.recording.workloads.ranks import results_of


def test_a_rank_without_peers_talks_to_no_one(tmp_path: Path) -> None:
    (result,) = results_of(isolated, tmp_path, world_size=1)
    assert result["difference"] < 1e-6
    for name in PROGRAMS:
        assert result[name]["collectives"] == []
        assert all(map(math.isfinite, result[name]["losses"])) and len(set(result[name]["losses"])) == 3
