"""Peak memory in prediction.json and on the terminal."""

from dataclasses import replace

from gnnperf.memory import Part, PeakMemory
from gnnperf.memory.measured import Measured
from gnnperf.predict.step_prediction import RankMemory, StepPrediction, WhatIfAnswer
from gnnperf.report.json_document import document
from gnnperf.report.text import bytes_text, memory_lines
from tests.predict.answers import toy_answer

MIB = 2**20
PEAK = PeakMemory(
    rank=1, step="ProfilerStep#3", parts_bytes={Part.PARAMETERS: 3 * MIB, Part.ACTIVATIONS: 5 * MIB, Part.ROUNDING: 0},
    at="aten::mm", held_between_steps_bytes=4 * MIB, hidden_bytes=MIB, buckets_bytes=MIB, unknown=("something",),
)  # fmt: skip


def with_memory(measured: Measured | None) -> StepPrediction:
    return replace(toy_answer(), peak_memory=(RankMemory(PEAK, measured),))


def test_parts_and_buckets_add_up_to_the_peak_and_the_rest_is_reported() -> None:
    (result,) = document(with_memory(None))["peak_memory"]
    assert result["peak_bytes"] == 9 * MIB == sum(result["parts_bytes"].values()) + result["ddp_buckets_bytes"]
    assert result["parts_bytes"] == {"parameters": 3 * MIB, "activations": 5 * MIB, "rounding": 0}
    assert (result["rank"], result["at"], result["unknown"]) == (1, "aten::mm", ["something"])
    assert result["measured_peak_bytes"] is None
    assert result["error"] is None


def test_the_error_is_of_what_the_recorder_counts() -> None:
    (result,) = document(with_memory(Measured("profiler allocations", 10 * MIB)))["peak_memory"]
    assert result["counted_by_that_method_bytes"] == 8 * MIB  # without the buckets, which Python does not know
    assert result["error"] == 8 / 10 - 1


def test_one_line_per_rank() -> None:
    (line,) = memory_lines(with_memory(Measured("max_memory_allocated", 10 * MIB)))
    assert line == (
        "peak memory of rank 1: 9 MiB at aten::mm (parameters 3 MiB, activations 5 MiB, DDP's buckets 1 MiB); "
        "counted as recorded 9 MiB, measured 10 MiB, error -10.0 %"
    )
    assert "measured" not in memory_lines(with_memory(None))[0]
    assert memory_lines(toy_answer()) == []


def test_sizes_transfer_their_unit() -> None:
    assert [bytes_text(n) for n in (512, 2_048, 3 * MIB, 5 * 2**30)] == ["0.5 KiB", "2 KiB", "3 MiB", "5 GiB"]


def _on_device(size: float | None) -> StepPrediction:
    return replace(toy_answer(), hardware="big_gpu", peak_memory=(RankMemory(PEAK, None, size),))


def test_whether_it_fits_is_one_sentence() -> None:
    fits, too_large = (memory_lines(_on_device(size * MIB))[-1] for size in (12.0, 8.0))
    assert fits.startswith("memory fits: rank 1, the fullest, takes 9 MiB of 12 MiB of big_gpu, 3 MiB left; CUDA's")
    assert too_large.startswith("memory does not fit: rank 1 needs 9 MiB of 8 MiB of big_gpu, 1 MiB too much; CUDA's")
    assert [document(_on_device(n))["peak_memory"][0]["fits"] for n in (12.0 * MIB, 8.0 * MIB, None)] == [
        True, False, None,
    ]  # fmt: skip


def test_memory_with_edits_is_reported_with_the_one_without() -> None:
    larger = replace(PEAK, parts_bytes={**PEAK.parts_bytes, Part.ACTIVATIONS: 14 * MIB})
    edited = replace(toy_answer(), peak_memory=(RankMemory(larger, None),))
    answer = replace(with_memory(None), whatif=WhatIfAnswer(("batch",), edited, 1, ()))
    assert memory_lines(answer)[-1] == "what if: peak memory of rank 1: 18 MiB, unedited 9 MiB (+100.0 %)"
    assert document(answer)["whatif"]["peak_memory"][0]["peak_bytes"] == 18 * MIB
