"""Comparison on held-out runs."""

from __future__ import annotations

import pytest

from gnnperf.training.evaluate import run_of


@pytest.mark.parametrize(
    ("recording", "run"),
    [("gpt/1", "gpt"), ("gpt/12", "gpt"), ("gpt", "gpt"), ("torchrec/a2a", "torchrec/a2a"), ("1", "1")],
)
def test_repeats_belong_to_one_run(recording: str, run: str) -> None:
    assert run_of(recording) == run
