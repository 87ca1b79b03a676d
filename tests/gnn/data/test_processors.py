"""Processors that cards name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.processors import Processor, processors_of


def carded(folder: Path, card: object) -> Path:
    """A run's folder with a card."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(card))
    return folder


def on(*names: str, kind: str = "cpu") -> dict[str, object]:
    """A card of ranks on these devices."""
    return {"ranks": [{"device": {"kind": kind, "name": name}} for name in names]}


def test_every_rank_of_every_run_once(tmp_path: Path) -> None:
    runs = [carded(tmp_path / "a", on("Epyc", "Xeon")), carded(tmp_path / "b", on("Epyc")), tmp_path / "no card"]
    assert processors_of(runs) == (Processor("Epyc"), Processor("Xeon"))


def test_what_vectors_a_processor_has_reports_two_of_one_name_apart(tmp_path: Path) -> None:
    devices = [{"kind": "cpu", "name": "Epyc", "capability": given} for given in ("AVX512", "AVX2", 7, "a\nb")]
    result = processors_of([carded(tmp_path / "a", {"ranks": [{"device": device} for device in devices]})])
    assert result == (
        unknown := Processor("Epyc"),
        older := Processor("Epyc", "AVX2"),
        newer := Processor("Epyc", "AVX512"),
    )
    assert not older.may_be(newer) and older.may_be(unknown) and newer.may_be(newer)
    assert [str(one) for one in result] == ["Epyc", "Epyc (AVX2)", "Epyc (AVX512)"]


def test_gpus_are_named_by_their_traces(tmp_path: Path) -> None:
    assert processors_of([carded(tmp_path / "a", on("NVIDIA H100", kind="gpu"))]) == ()


@pytest.mark.parametrize("ranks", [None, {"0": {}}, [None], [{}], [{"device": "cpu"}], [{"device": {"kind": "cpu"}}],
                                   [{"device": {"kind": "cpu", "name": 7}}], [{"device": {"kind": "cpu", "name": ""}}],
                                   [{"device": {"kind": "cpu", "name": "a\nb"}}]])  # fmt: skip
def test_a_card_that_is_not_as_the_recorder_writes_it_names_nothing(tmp_path: Path, ranks: object) -> None:
    assert processors_of([carded(tmp_path / "a", {"ranks": ranks})]) == ()


def test_words_that_name_no_product_are_left_out(tmp_path: Path) -> None:
    result = processors_of([carded(tmp_path / "a", on("Intel(R) Xeon(R) of ann on gpu7.example.org", "x" * 1000))])
    assert result == (Processor("Intel(R) Xeon(R)"),)


def test_a_card_that_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a JSON object"):
        processors_of([carded(tmp_path / "a", [])])
