"""Flags become keys, and Hydra reads them back as they were meant."""

from __future__ import annotations

import pytest

from gnnperf.core.errors import InputError
from gnnperf.predict import Request
from gnnperf.predict.composition import composed
from gnnperf.predict.composition.command_line import with_keys

FLAGS = ("json", "quiet", "max_step_ms", "against")


def keys(*words: str) -> list[str]:
    return with_keys(words, FLAGS, Request)


def test_flags_are_keys_wherever_they_stand() -> None:
    assert keys("trace=x", "--json", "--max-step-ms", "12", "mode=gnn", "--against=out/a") == [
        "trace=x", "mode=gnn", "json=true", "max_step_ms=12", "against=out/a",
    ]  # fmt: skip


def test_what_is_hydras_stays_hydras_with_all_overrides_in_a_row() -> None:
    """Its parser takes overrides in one place only."""
    assert keys("--cfg", "job", "--multirun", "--jsonl", "-m") == ["--cfg", "job", "--multirun", "--jsonl", "-m"]
    assert keys("trace=x", "--cfg", "job", "--json") == ["trace=x", "json=true", "--cfg", "job"]
    assert keys("--json", "--cfg", "job", "trace=x") == ["--cfg", "job", "trace=x", "json=true"]
    assert keys("--cfg", "job", "--quiet") == ["--cfg", "job", "quiet=true"]


@pytest.mark.parametrize("path", ["a=b/c, d", "it's", "back\\", "a\\'b", "{x}", "ein Ordner/ä", "(1)", "null", "~/x"])
def test_any_path_comes_through(path: str) -> None:
    config = composed("predict", Request, *keys("--against", path), "trace=x")
    assert config.against == (None if path == "null" else path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-step-ms"], r"--max-step-ms: needs a value\. Allowed: --max-step-ms VALUE, or max_step_ms=VALUE"),
        (["--against", "--json"], "--against: needs a value"),
        (["--against="], "--against: needs a value"),
        (["--json=yes"], "--json: takes no value, here 'yes'"),
    ],
)
def test_a_flag_that_cannot_be_read_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        keys(*words)


def test_values_are_those_of_the_key() -> None:
    with pytest.raises(InputError, match="max_step_ms: bad value 'soon'"):
        composed("predict", Request, *keys("--max-step-ms", "soon"))
    assert composed("predict", Request, *keys("--max-step-ms", "1e1", "--quiet")).max_step_ms == 10.0
