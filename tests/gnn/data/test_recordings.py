"""Cards of recordings: step times, programs, processors."""

import json
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.recordings import Processor, processors_of, read_recordings
from tests.gnn.data.data_sets import carded, write_card


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


def test_every_rank_of_every_run_once(tmp_path: Path) -> None:
    epyc, xeon = Processor("Epyc"), Processor("Xeon")
    runs = [carded(tmp_path / "a", epyc, xeon), carded(tmp_path / "b", epyc), tmp_path / "no card"]
    assert processors_of(runs) == (epyc, xeon)


def test_what_vectors_a_processor_has_reports_two_of_one_name_apart(tmp_path: Path) -> None:
    devices = [{"kind": "cpu", "name": "Epyc", "capability": given} for given in ("AVX512", "AVX2", 7, "a\nb")]
    result = processors_of([carded(tmp_path / "a", *devices)])
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
                                   [{"device": {"kind": "gpu", "name": "NVIDIA H100"}}]])  # fmt: skip
def test_a_card_of_gpus_or_not_as_the_recorder_writes_it_names_nothing(tmp_path: Path, ranks: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"ranks": ranks}))
    assert processors_of([tmp_path]) == ()


def test_words_that_name_no_product_are_left_out(tmp_path: Path) -> None:
    named = [Processor("Intel(R) Xeon(R) of ann on gpu7.example.org"), Processor("x" * 1000)]
    assert processors_of([carded(tmp_path / "a", *named)]) == (Processor("Intel(R) Xeon(R)"),)
