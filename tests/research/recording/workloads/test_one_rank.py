from __future__ import annotations

import json
import math
from pathlib import Path

from gnnperf.record.launcher import launch
from tests.research.recording.workloads.one_rank import PROGRAMS, isolated


def test_a_rank_without_peers_talks_to_no_one(tmp_path: Path) -> None:
    launch(isolated, (tmp_path,), world_size=1, timeout_s=120)
    result = json.loads((tmp_path / "rank_0.json").read_text())
    assert result["difference"] < 1e-6
    for name in PROGRAMS:
        assert result[name]["collectives"] == []
        assert all(map(math.isfinite, result[name]["losses"])) and len(set(result[name]["losses"])) == 3
