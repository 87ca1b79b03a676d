"""The command: accuracies next to speed-ups, and input that it refuses."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pandas as pd
import pytest

from gnnperf.core import InputError
from research.sparsity.cli import add_parsers
from research.sparsity.roofline import EvenAxis

LAYER = ["sparsity-roofline", "--m", "64", "--n", "32", "--k", "64", "--hardware", "h100_sxm"]


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def test_an_even_axis_has_round_ticks() -> None:
    assert EvenAxis(0.0, 7.3, "x").ticks() == pytest.approx([0, 2, 4, 6])
    assert EvenAxis(72.7, 76.4, "x").ticks() == pytest.approx([73, 74, 75, 76])
    assert EvenAxis(0.0, 1.0, "x").at(0.25) == 0.25


def test_accuracies_stand_with_speed_ups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("pattern,sparsity,accuracy\ndense,0,76.5\nblock16,0.75,71\n2:4,0.5,76\nblock4,0.5,70\n")
    requested = [*LAYER, "--patterns", "2:4", "block16", "block48", "--sparsities", "0.5", "--accuracy", str(mine)]
    assert run([*requested, "--out", str(tmp_path / "s.csv")]) == 0
    shown = capsys.readouterr().out
    assert "block48: 48 does not divide m, 64, and k, 64" in shown
    assert "accuracies of block4 are not used" in shown
    table = pd.read_csv(tmp_path / "s.csv")
    assert list(zip(table["pattern"], table["sparsity"], strict=True)) == [
        ("dense", 0.0), ("2:4", 0.5), ("block16", 0.5), ("block16", 0.75),
    ]  # fmt: skip
    assert list(table["accuracy"].fillna(-1)) == [76.5, 76.0, -1.0, 71.0]
    assert run([*requested, "--out", str(tmp_path / "s.html")]) == 0
    assert (tmp_path / "s.html").read_text().count("<svg") == 2


def test_a_device_without_units_for_a_pattern_states_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*LAYER[:-1], "v100_sxm2_16gb"]) == 0
    assert "2:4: v100_sxm2_16gb has no units for it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--patterns", "4:8"], "--patterns: no pattern '4:8'. Allowed: unstructured, 2:4, blockN"),
        (["--sparsities", "1.5"], "--sparsities: sparsity 1.5. Allowed: above 0, below 1"),
        (["--dtype", "float12"], "--dtype: bad value 'float12'"),
        (["--accuracy", "no.csv"], "no.csv: no such file"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        run([*LAYER, *arguments])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("pattern,sparsity\n", "column 'accuracy' is missing"),
        ("pattern,sparsity,accuracy\n3:4,0.5,1\n", "line 2: no pattern '3:4'"),
        ("pattern,sparsity,accuracy\n2:4,0.6,1\n", "line 2: sparsity 0.6 of 2:4. Allowed: 0.5"),
        ("pattern,sparsity,accuracy\ndense,0,high\n", "line 2, accuracy: 'high' is no number"),
        ("pattern,sparsity,accuracy\ndense,0,1\ndense,0,2\n", "line 3: dense, 0 is there twice"),
    ],
)
def test_accuracies_that_make_no_sense_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "mine.csv").write_text(rows)
    with pytest.raises(InputError, match=re.escape(message)):
        run([*LAYER, "--accuracy", str(tmp_path / "mine.csv")])
