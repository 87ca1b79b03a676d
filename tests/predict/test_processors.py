"""Which processor a checkpoint learned from, and which one is asked about."""

from __future__ import annotations

import json
from pathlib import Path

from gnnperf.predict.processors import learned_on, other_processor, processors_of


def recorded(root: Path, run: str, processor: str | None) -> Path:
    """A folder with a card that names a processor; None: without a card."""
    (root / run).mkdir(parents=True)
    if processor is not None:
        card = {"ranks": [{"device": {"kind": "cpu", "name": processor}}]}
        (root / run / "run.json").write_text(json.dumps(card))
    return root / run


def test_processors_of_recordings_once_each(tmp_path: Path) -> None:
    for run, processor in (("a/1", "Epyc"), ("a/2", "Epyc"), ("b/1", "Xeon"), ("c/1", None), ("d/1", "")):
        recorded(tmp_path, run, processor)
    assert processors_of(tmp_path, ["a/1", "a/2", "b/1", "c/1", "d/1"]) == ["Epyc", "Xeon"]
    assert processors_of(tmp_path, ["a/1"]) == ["Epyc"]


def test_another_processor_is_named(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "mine", "Xeon")
    (said,) = other_processor(trace, ("Epyc", "Grace"))
    assert "ran on Xeon" in said and "runs on Epyc, Grace" in said
    assert other_processor(trace, ("Epyc", "Xeon")) == ()


def test_what_is_unknown_says_nothing(tmp_path: Path) -> None:
    assert other_processor(recorded(tmp_path, "mine", "Xeon"), ()) == ()  # an older checkpoint
    assert other_processor(recorded(tmp_path, "bare", None), ("Epyc",)) == ()
    assert other_processor(tmp_path / "bare" / "trace.json", ("Epyc",)) == ()  # a file
    assert other_processor(None, ("Epyc",)) == ()  # a plan


def test_a_checkpoint_tells_the_processors_of_its_training() -> None:
    assert learned_on({"training": {"processors": ["Epyc"]}}) == ("Epyc",)
    assert learned_on({"training": {"seed": 0}}) == learned_on({}) == ()
