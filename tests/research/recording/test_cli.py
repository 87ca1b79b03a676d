"""Recipes as `gnnperf record --recipe` reaches them."""

import argparse
import importlib
import tomllib
from pathlib import Path

import pytest

import research
from gnnperf.core.errors import InputError
from research.recording import cli

PROJECT = Path(str(research.__file__)).with_name("pyproject.toml")
ENTRY_POINTS = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]["gnnperf.recipes"]


def options(out: Path, raw: Path | None = None) -> argparse.Namespace:
    return argparse.Namespace(out=out, raw=raw, resume=False, minutes=-1.0)


def test_the_recipes() -> None:
    assert set(ENTRY_POINTS) == {"demo", "cpu-gloo", "cpu-again", "cpu-lengths", "cpu-programs", "gpu", "gpu-programs"}


@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_an_entry_point_names_a_recipe(name: str) -> None:
    module, _, attribute = ENTRY_POINTS[name].partition(":")
    recipe = getattr(importlib.import_module(module), attribute)
    assert callable(recipe)
    if name != "demo":
        assert recipe.args[0]().name == name  # the plan's data set


def test_a_data_set_needs_a_folder_for_raw_traces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--raw is missing"):
        cli.cpu_gloo(options(tmp_path))


def test_without_time_nothing_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="record the plan cpu-gloo first"):
        cli.cpu_gloo(options(tmp_path / "set", tmp_path / "raw"))
    assert "--resume goes on" in capsys.readouterr().out
