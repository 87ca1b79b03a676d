"""Cards of recordings: step times, programs, processors."""

import json
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.recordings import Processor, processors_of, read_recordings
from tests.gnn.data.data_sets import write_card


def test_runs_and_repeats_as_the_cards_describe_them(tmp_path: Path) -> None:
    write_card(tmp_path / "b" / "1", 100.0)
    write_card(tmp_path / "a" / "10", 300.0, link={"medium": "loopback"})
    write_card(tmp_path / "a" / "2", 200.0)
    result = read_recordings(tmp_path)
    assert list(result) == ["a", "b"]
    assert list(result["a"]) == [2, 10]
    one = result["b"][1]
    assert (one.name, one.unprofiled_us, one.profiled_us) == ("b/1", 100.0, pytest.approx(110.0))
    assert (one.workload, one.link, one.world_size, one.machine) == ("dlrm", "veth 1 Gbit/s", 2, "f00d")
    assert result["a"][10].link == "loopback"


def test_broken_rejected_and_other_folders_are_left_out(tmp_path: Path) -> None:
    write_card(tmp_path / "a" / "1", 100.0)
    write_card(tmp_path / "a" / "2", 100.0, status="rejected")
    write_card(tmp_path / "b" / "1", 100.0, status="broken", step_time=None)
    write_card(tmp_path / "examples" / "a", 100.0)
    assert {run: list(repeats) for run, repeats in read_recordings(tmp_path).items()} == {"a": [1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_time": {}}, "no step time without profiler"),
        ({"step_time": None}, "no step time"),
        ({"step_time": {"without_profiler": {"median_us": 0.0}}}, "0.0 us"),
    ],
)
def test_cards_without_step_times_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    write_card(tmp_path / "a" / "1", 100.0, **changes)
    with pytest.raises(InputError, match=message):
        read_recordings(tmp_path)


def test_an_empty_folder_and_a_broken_card_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no complete recordings"):
        read_recordings(tmp_path)
    write_card(tmp_path / "a" / "1", 100.0)
    (tmp_path / "a" / "1" / "run.json").write_text("[1")
    with pytest.raises(InputError, match="not JSON"):
        read_recordings(tmp_path)
    (tmp_path / "a" / "1" / "run.json").write_text("[1]")
    with pytest.raises(InputError, match="not a JSON object"):
        read_recordings(tmp_path)


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


@pytest.mark.parametrize("ranks", [None, {"0": {}}, [None], [{}], [{"device": "cpu"}], [{"device": {"kind": "cpu"}}],
                                   [{"device": {"kind": "cpu", "name": 7}}], [{"device": {"kind": "cpu", "name": ""}}],
                                   [{"device": {"kind": "cpu", "name": "a\nb"}}],
                                   on("NVIDIA H100", kind="gpu")["ranks"]])  # fmt: skip
def test_a_card_of_gpus_or_not_as_the_recorder_writes_it_names_nothing(tmp_path: Path, ranks: object) -> None:
    assert processors_of([carded(tmp_path / "a", {"ranks": ranks})]) == ()


def test_words_that_name_no_product_are_left_out(tmp_path: Path) -> None:
    result = processors_of([carded(tmp_path / "a", on("Intel(R) Xeon(R) of ann on gpu7.example.org", "x" * 1000))])
    assert result == (Processor("Intel(R) Xeon(R)"),)
