import argparse
import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import torch

import gnnperf
from gnnperf.core.errors import InputError
from gnnperf.record import card, record, record_cli, script
from gnnperf.record import record as record_steps
from gnnperf.record.wrap import SETTINGS, wrap
from tests.command import Command


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    record_cli.add_parsers(parser.add_subparsers())
    return parser.parse_args(arguments)


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a distribution offers: a recipe that returns 7."""
    monkeypatch.setattr(record_cli, "plugin_names", lambda group: ("cpu-gloo", "demo"))
    monkeypatch.setattr(record_cli, "load_plugin", lambda group, name, where: lambda arguments: 7)


def test_a_recipe_or_a_command(recipes: None) -> None:
    recipe = parse("record", "--recipe", "cpu-gloo", "--raw", "raw", "--out", "out", "--resume")
    assert (recipe.recipe, recipe.raw, recipe.out, recipe.resume) == ("cpu-gloo", Path("raw"), Path("out"), True)
    command = parse("record", "--out", "out", "--profiled-steps", "3", "--", "torchrun", "train.py", "--lr", "1")
    assert command.command[-4:] == ["torchrun", "train.py", "--lr", "1"] and command.profiled_steps == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "nothing to record"), (("--recipe", "demo", "--", "python", "x.py"), "a recipe and a command")],
)
def test_refuses(recipes: None, arguments: tuple[str, ...], message: str) -> None:
    parsed = parse("record", "--out", "out", *arguments)
    with pytest.raises(InputError, match=message):
        parsed.run(parsed)


def test_a_recipe_gets_the_options_and_returns_the_exit_code(recipes: None) -> None:
    parsed = parse("record", "--recipe", "demo", "--out", "out")
    assert parsed.run(parsed) == 7


def test_an_unknown_recipe_is_named(recipes: None, command: Command) -> None:
    message = command.refused_by(parse, "record", "--recipe", "tpu", "--out", "x")
    assert all(name in message for name in ("'tpu'", "cpu-gloo", "demo"))


def test_without_recipes_the_message_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cli, "RECIPES", "gnnperf.no_such_group")
    parsed = parse("record", "--recipe", "demo", "--out", "out")
    with pytest.raises(InputError, match=r"'demo' is not installed\. .*pip install --editable ./research"):
        parsed.run(parsed)


# What the recorder must not need. Python imports this module by itself before any other.
SITECUSTOMIZE = """
import sys
from importlib.machinery import ModuleSpec

FOREIGN = "pandas numpy pyarrow msgspec isal hydra omegaconf lightning torch_geometric rich".split()

class Blocker:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] in FOREIGN else None

    def create_module(self, spec):
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)

    def exec_module(self, module):
        raise AssertionError

sys.meta_path.insert(0, Blocker())
"""
TRAIN = """
import gc, os, sys
import torch
import torch.distributed as dist
from torch import nn

import beside  # a module in the script's own folder

ranks = "WORLD_SIZE" in os.environ
if ranks:
    dist.init_process_group("gloo")
model = nn.Linear(16, 16)
if ranks:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    for _ in range(2):
        model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
line = f"trained 20 {__name__} {__file__ == os.path.abspath(sys.argv[0])}\\n"
os.write(1, line.encode())  # in one piece: ranks share the pipe
if ranks:
    del model, optimizer
    gc.collect()  # a model that still holds its group at exit may abort the program: its threads want the interpreter
    dist.destroy_process_group()
"""
# of all sorts 2 + 3 + 2 + 2 + 3 + 1 = 13
STEPS: dict[str, Any] = {"warmup_steps": 2, "unprofiled_steps": 3, "profiled_steps": 2}
# A command whose rank 0 states what became of the run, and then ends.
LEAVES = "import os, sys; open(sys.argv[1] + '/run.json', 'w').write(sys.argv[2]); {end}"


def card_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "run.json").read_text())
    return content


def test_a_script_under_torchrun_is_recorded_unchanged(tmp_path: Path) -> None:
    out, site, folder = tmp_path / "run", tmp_path / "site", Path(sys.executable).parent
    site.mkdir()
    for name, text in (("train.py", TRAIN), ("beside.py", ""), ("site/sitecustomize.py", SITECUSTOMIZE)):
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": f"{site}:{Path(str(gnnperf.__file__)).parents[1]}",
                                "PATH": f"{folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}  # fmt: skip
    steps = [word for name, count in STEPS.items() for word in (f"--{name.replace('_', '-')}", str(count))]
    words = [sys.executable, "-m", "gnnperf", "record", "--out", str(out), *steps, "--"]
    command = ["torchrun", "--nproc-per-node", "2", str(tmp_path / "train.py")]
    done = subprocess.run([*words, *command], capture_output=True, text=True, env=environment, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 20 __main__ True") == 2
    about = card_of(out)
    assert (about["status"], about["world_size"], about["workload"]) == ("complete", 2, "train")
    assert about["link"] == {"backend": "gloo", "medium": "one host", "hosts": 1}
    assert about["step_time"]["without_profiler"]["steps"] == 3 and about["step_time"]["with_profiler"]["steps"] == 2
    assert sorted(p.name for p in out.iterdir()) == [
        "rank_0.et.json.gz", "rank_0.kineto.json.gz", "rank_1.et.json.gz", "rank_1.kineto.json.gz", "run.json"
    ]  # fmt: skip
    assert str(tmp_path) not in (out / "run.json").read_text()


def test_a_command_keeps_its_exit_code_and_a_complete_run_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVES.format(end="sys.exit(3)"), str(tmp_path), '{"status": "complete"}']
    assert (wrap(command, tmp_path, **STEPS), card.status(tmp_path)) == (3, "complete")
    with pytest.raises(InputError, match="holds a complete run"):
        wrap(["true"], tmp_path, **STEPS)


@pytest.mark.parametrize(
    ("state", "end", "code", "reason"),
    [
        ({"status": "broken", "reason": "rank 0: 12 of 13 steps ran"}, "", 1, "rank 0: 12 of 13 steps ran"),
        ({"status": "recording"}, "os.kill(os.getpid(), 9)", 137, "the command ended with exit code 137"),  # killed
    ],
)
def test_what_became_of_a_broken_run_is_one_message(
    tmp_path: Path, state: dict[str, str], end: str, code: int, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", LEAVES.format(end=end), str(tmp_path), json.dumps(state)]
    assert wrap(command, tmp_path, **STEPS) == code
    assert (card_of(tmp_path)["status"], card.reason(tmp_path)) == ("broken", reason)
    message = capfd.readouterr().err
    assert message.count(reason) == 1 and ("lower --warmup-steps" in message) == reason.endswith("ran")


def test_a_command_without_steps_or_that_cannot_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert wrap(["true"], tmp_path / "run", **STEPS) == 2
    assert card.reason(tmp_path / "run") == "no optimizer step was seen"
    assert "no step was seen" in capfd.readouterr().err
    with pytest.raises(InputError, match="cannot be started"):
        wrap(["mpirun-xyz", "python", "train.py"], tmp_path / "other", **STEPS)


# --- inside the recorded program: what its end does to the recording


def took_step() -> torch.optim.Optimizer:
    parameter = torch.ones(1, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    return torch.optim.SGD([parameter])


@pytest.fixture
def endings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What the recorded program runs at its exit; its settings are there."""
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", lambda function, *given: at_exit.append(lambda: function(*given)))
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)
    monkeypatch.setenv(SETTINGS, json.dumps({"run_dir": str(tmp_path / "run"), **STEPS}))
    script._marker.cache_clear()
    return at_exit


@pytest.mark.parametrize(
    ("module", "error", "reason"),
    [(None, None, "rank 0: 3 of 13 steps ran"), ("train.gpt", KeyError("a secret"), "rank 0: KeyError")],
)
def test_a_program_that_ends_early_breaks_its_run(
    endings: list[Callable[[], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str | None,
    error: Exception | None, reason: str,
) -> None:  # fmt: skip
    """A script has the name of its file, `python -m module` that of the module."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(module, None) if module else None)
    monkeypatch.setattr(sys, "argv", ["folder/script.py"])
    monkeypatch.delitem(sys.modules, script.RECORDER)
    optimizer = took_step()
    for _ in range(4):  # the first only begins the recording
        script.stepped(optimizer)
    if error is not None:
        sys.excepthook(type(error), error, None)
    for ending in endings:
        ending()
    assert (card.status(tmp_path / "run"), card.reason(tmp_path / "run")) == ("broken", reason)
    assert card_of(tmp_path / "run")["workload"] == (module or "script")
    script._marker.cache_clear()


def test_a_program_that_records_itself_is_left_as_it_is(endings: list[Callable[[], object]], tmp_path: Path) -> None:
    assert record_steps.__module__ == script.RECORDER
    script.stepped(took_step())
    assert endings == [] and not (tmp_path / "run").exists()
    script._marker.cache_clear()


FAST: dict[str, Any] = {"warmup_steps": 0, "unprofiled_steps": 1, "profiled_steps": 1}
DISK_BYTES = 128 * 2**10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "gnnperf-test", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def train(run_dir: Path, filler: Path | None = None) -> None:
    weight = torch.ones(8, 8, requires_grad=True)
    with record(run_dir, **FAST) as step:
        while not step.done:
            (weight @ weight).sum().backward()
            step()
        if filler is not None:
            fill(filler)


def fill(path: Path) -> None:
    """Until not a byte is left."""
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))


def test_a_full_disk_breaks_one_run_only(disk: Path) -> None:
    train(disk / "whole")
    before = {path.name: path.read_bytes() for path in (disk / "whole").iterdir()}
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        train(disk / "broken", disk / "filler")
    assert card.status(disk / "broken") == "broken"
    assert "No space left" in json.loads((disk / "broken" / "run.json").read_text())["reason"]
    assert [path.name for path in (disk / "broken").iterdir()] == ["run.json"]
    assert {path.name: path.read_bytes() for path in (disk / "whole").iterdir()} == before
    (disk / "filler").unlink()
    train(disk / "broken")
    assert card.status(disk / "broken") == "complete"


def test_a_disk_that_is_full_from_the_start_is_refused(disk: Path) -> None:
    fill(disk / "filler")
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        train(disk / "run")
