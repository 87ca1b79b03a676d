from __future__ import annotations

import json
import math
from pathlib import Path

from gnnperf.record.launch import launch
from tests.research.recording.workloads.one_rank import PROGRAMS, alone


def test_a_rank_without_peers_talks_to_nobody(tmp_path: Path) -> None:
    launch(alone, (tmp_path,), world_size=1, timeout_s=120)
    found = json.loads((tmp_path / "rank_0.json").read_text())
    assert found["difference"] < 1e-6
    for name in PROGRAMS:
        assert found[name]["collectives"] == []
        assert all(map(math.isfinite, found[name]["losses"])) and len(set(found[name]["losses"])) == 3
