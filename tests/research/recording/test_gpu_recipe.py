"""The recipe for a GPU: its order, and all of it at toy size on the CPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from research.recording import dataset
from research.recording.build import build
from research.recording.dataset import record_all
from research.recording.gpu_recipe import PLACES, Programs, gpu
from research.recording.plan import Change
from research.recording.run import Steps
from research.recording.spec import Sleep
from research.recording.workloads.cnn import Cnn, Layout
from research.recording.workloads.transformer import Transformer
from tests.research.recording.programs import TINY_DLRM

TINY_GPT = Transformer(layers=1, width=64, sequence=8, batch=2, vocabulary=50)
SLEEP_US = 100_000.0  # far longer than a step
TOY = Programs(
    eager=((TINY_GPT,), (Cnn(blocks=1, channels=4, image=16, batch=2, layout=Layout.BOTTLENECK),), (TINY_DLRM,)),
    accelerated=(),
    paired=(TINY_GPT,),
    sleeps=tuple(Sleep(0, place, SLEEP_US) for place in PLACES),
)


def test_eager_runs_of_every_program_come_first_and_compiled_ones_last() -> None:
    plan = gpu()
    assert len({run.name for run in plan.runs}) == len(plan.runs) and {run.world_size for run in plan.runs} == {1}
    assert {run.workload.kind for run in plan.runs[:4]} == {"transformer", "cnn", "dlrm", "moe"}
    accelerated = [getattr(r.workload, "compile", False) or getattr(r.workload, "cuda_graph", False) for r in plan.runs]
    assert accelerated == sorted(accelerated) and any(accelerated)
    assert {pair.change for pair in plan.pairs} == {Change.SLEEP, Change.REPEAT}
    first_b = min(plan.runs.index(pair.b) for pair in plan.pairs)
    assert first_b < len(plan.runs) // 2  # a prefix has interventions, too


def test_all_of_it_at_toy_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dataset, "probe_us", lambda cores: [100.0 for _ in cores])
    plan = replace(gpu(TOY), steps=Steps(1, 2, 2), repeats=1)
    outcomes = record_all(plan, tmp_path / "raw", lambda line: None)
    assert len(outcomes) == len(plan.runs) == 5 and all(outcome.accepted for outcome in outcomes)
    assert build(plan, tmp_path / "raw", tmp_path / "set").recordings == 5
    pairs = json.loads((tmp_path / "set" / "interventions.json").read_text())["pairs"]
    assert [pair["kind"] for pair in pairs] == ["sleep", "repeat"]
    with_sleep = json.loads((tmp_path / "set" / pairs[0]["b"] / "1" / "run.json").read_text())
    assert with_sleep["conditions"]["sleep"] == {"rank": 0, "place": "start", "sleep_us": SLEEP_US}
    assert with_sleep["step_time"]["without_profiler"]["median_us"] >= SLEEP_US
