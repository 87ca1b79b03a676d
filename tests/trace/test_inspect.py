"""gnnperf inspect: what a trace holds and what it lacks."""

import io
import math
from pathlib import Path

from rich.console import Console

from gnnperf.trace import read_run
from gnnperf.trace.inspect import inspect, print_inspection
from tests.command import Command
from tests.trace import kineto_files as files


def _text(path: Path) -> str:
    out = io.StringIO()
    print_inspection(inspect(read_run(path)), Console(file=out, width=120))
    return out.getvalue()


def test_ranks_steps_links_and_what_is_missing(tmp_path: Path) -> None:
    result = inspect(read_run(files.write_ranks(tmp_path, 4, [0, 1])))
    rank = result.ranks[0]
    assert (result.world_size, len(result.ranks), rank.streams, rank.threads) == (4, 2, 1, 1)
    assert rank.duration_ms == 0.1
    assert list(rank.steps) == [("ProfilerStep#5", 0.1)]
    assert rank.events == {"cpu_op": 3, "annotation": 1, "runtime": 2, "kernel": 2}
    assert math.isclose(rank.ops_with_shapes, 1 / 3)
    assert rank.links == {"correlation": 2} and rank.tied_share == 1.0
    assert rank.devices == ("Tesla V100-SXM2-32GB",)
    assert result.missing == ("tensor dependencies: give the execution trace too", "2 of 4 ranks")


def test_the_text_states_it(tmp_path: Path) -> None:
    kernel = files.device("ncclDevKernel_AllReduce_Sum_f32(x)", 86, 4, 77, **{
        "Collective name": "allreduce", "In msg nelems": 64, "Group size": 2, "dtype": "Float"})  # fmt: skip
    text = _text(files.write(tmp_path / "demo.json", files.document([*files.step_events(), kernel])))
    for piece in ("demo: 1 rank(s) traced", "Tesla V100", "ProfilerStep#5 0.10", "all_reduce", "float32", "64"):
        assert piece in text


def test_the_command_prints_or_exits_with_two(tmp_path: Path, command: Command) -> None:
    path = files.write(tmp_path / "demo.json", files.document(files.step_events()))
    assert "demo: 1 rank(s) traced" in command.shown("inspect", path)
    assert "does not exist" in command.refused("inspect", tmp_path / "nowhere")
