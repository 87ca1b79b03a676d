import argparse
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.record import record_cli
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
