"""Inputs that the benchmarks of speed make."""

import gzip
import json
from pathlib import Path

import pytest

from research.benchmarks import data_build
from research.benchmarks.speed import as_ranks


def test_ranks_have_the_last_two_steps_with_kernels_up_to_three_percent_shorter(tmp_path: Path) -> None:
    def event(cat: str, name: str, ts: float) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": 100.0}

    steps = [event("user_annotation", f"ProfilerStep#{step}", 1000.0 * step) for step in (1, 2, 3)]
    kernels = [event("kernel", "gemm", 1000.0 * step + 10.0) for step in (1, 2, 3)]
    trace = {"distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": [*steps, *kernels]}
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    (tmp_path / "ranks").mkdir()
    as_ranks(tmp_path / "t.json.gz", 2, tmp_path / "ranks")
    made = [json.loads((tmp_path / "ranks" / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert [one["distributedInfo"] for one in made] == [{"rank": rank, "world_size": 2} for rank in (0, 1)]
    assert [[e["ts"] for e in one["traceEvents"]] for one in made] == [[2000.0, 3000.0, 2010.0, 3010.0]] * 2
    shorter = [e["dur"] for one in made for e in one["traceEvents"] if e["cat"] == "kernel"]
    assert len(set(shorter)) == 4 and all(97.0 <= dur_us < 100.0 for dur_us in shorter)


def test_each_recording_becomes_a_run_of_its_own_and_is_copied_again_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1", "a/2", "a/notes"):
        (tmp_path / "recorded" / name).mkdir(parents=True)
        (tmp_path / "recorded" / name / "run.json").write_text(name)
    monkeypatch.setattr(data_build, "RECORDED", tmp_path / "recorded")
    runs = data_build.copies(3, tmp_path / "raw")
    texts = {path.name: (path / "1" / "run.json").read_text() for path in runs.iterdir()}
    assert texts == {"a_r1_c0": "a/1", "a_r2_c0": "a/2", "a_r1_c1": "a/1"}
