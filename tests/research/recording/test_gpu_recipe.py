"""The recipe for a GPU: its order, and a sleep of it at toy size on the CPU."""

import json
from pathlib import Path

from research.evaluation.pairs import Change
from research.recording.gpu_recipe import PLACES, Programs, gpu, gpu_programs
from research.recording.run import Sleep, Steps, record_run
from research.recording.workloads.cnn import Cnn, Layout
from research.recording.workloads.library_model import LibraryModel
from research.recording.workloads.transformer import Transformer
from tests.research.recording.programs import TINY_DLRM

TINY_GPT = Transformer(layers=1, width=64, sequence=8, batch=2, vocabulary=50)
TINY_GRAPH = LibraryModel("graph_sage", size=4)
SLEEP_US = 100_000.0  # far longer than a step
TOY = Programs(
    eager=(
        (TINY_GPT,),
        (Cnn(blocks=1, channels=4, image=16, batch=2, layout=Layout.BOTTLENECK),),
        (TINY_DLRM,),
        (TINY_GRAPH,),
    ),
    accelerated=(),
    enlarged=(TINY_GRAPH,),
    paired=(TINY_GPT,),
    sleeps=tuple(Sleep(0, place, SLEEP_US) for place in PLACES),
)


def test_every_program_runs_once_before_the_known_changes_begin() -> None:
    plan = gpu()
    assert len({run.name for run in plan.runs}) == len(plan.runs) and {run.world_size for run in plan.runs} == {1}
    first_b = min(plan.runs.index(pair.b) for pair in plan.pairs)
    eager = {run.name for run in plan.runs[:first_b]}
    assert {run.workload.kind for run in plan.runs[:7]} == {"transformer", "library", "cnn", "dlrm", "moe"}
    assert all(pair.a.name in eager for pair in plan.pairs)
    assert {pair.change for pair in plan.pairs[:2]} == {Change.SIZE}
    assert {pair.change for pair in plan.pairs} == {Change.SIZE, Change.SLEEP, Change.REPEAT}
    assert any("graph" in run.name or "compile" in run.name for run in plan.runs[first_b : first_b + 3])


def test_a_second_gpu_has_new_programs_and_those_of_the_first_in_their_parts() -> None:
    plan, first = gpu_programs(), gpu()
    parts, known = first.splits["program"], {run.name for run in first.runs}
    new = {run.name for run in plan.runs} - known
    assert len(new) == 16 and new <= set(plan.splits["program"]["test"])
    assert all(set(names) - new <= set(parts[part]) for part, names in plan.splits["program"].items())
    assert plan.runs[0].name in new and plan.runs[1] == first.runs[0]  # in turns
    assert (plan.repeats, plan.steps.profiled, plan.pairs) == (1, 2, ())


def test_a_sleep_is_recorded(tmp_path: Path) -> None:
    plan = gpu(TOY)
    assert len(plan.runs) == 7
    assert [pair.change for pair in plan.pairs] == [Change.SIZE, Change.SLEEP, Change.REPEAT]
    assert plan.pairs[0].b.workload.batch == 2 and plan.pairs[0].edit == {"parameter": "batch", "to": 2}
    record_run(tmp_path / "run", plan.pairs[1].b, Steps(1, 2, 2))
    card = json.loads((tmp_path / "run" / "run.json").read_text())
    assert card["conditions"]["sleep"] == {"rank": 0, "place": "start", "sleep_us": SLEEP_US}
    assert card["step_time"]["without_profiler"]["median_us"] >= SLEEP_US
