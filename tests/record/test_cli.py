from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.record.cli import RECIPES, add_parsers


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    return parser.parse_args(arguments)


def test_a_recipe_or_a_command() -> None:
    recipe = parse("record", "--recipe", "cpu-gloo", "--raw", "raw", "--out", "out", "--resume")
    assert (recipe.recipe, recipe.raw, recipe.out, recipe.resume) == ("cpu-gloo", Path("raw"), Path("out"), True)
    command = parse("record", "--out", "out", "--profiled-steps", "3", "--", "torchrun", "train.py", "--lr", "1")
    assert command.command[-4:] == ["torchrun", "train.py", "--lr", "1"] and command.profiled_steps == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to record"),
        (("--recipe", "demo", "--", "python", "x.py"), "a recipe and a command"),
        (("--recipe", "cpu-gloo"), "--raw is missing"),
    ],
)
def test_refuses(arguments: tuple[str, ...], message: str) -> None:
    parsed = parse("record", "--out", "out", *arguments)
    with pytest.raises(InputError, match=message):
        parsed.run(parsed)


def test_an_unknown_recipe_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse("record", "--recipe", "tpu", "--out", "x")
    message = capsys.readouterr().err
    assert stop.value.code == 2 and "'tpu'" in message and all(recipe in message for recipe in RECIPES)


def test_the_parser_does_not_load_torch() -> None:
    code = "import sys, gnnperf.record.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_recorder_needs_torch_and_the_standard_library_only() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pandas', 'pyarrow', 'msgspec', 'lightning', 'hydra']));"
        "from gnnperf.record import record; import gnnperf.record.cpu_gloo, gnnperf.record.dataset"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
