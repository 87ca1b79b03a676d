"""What the terminal shows."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from gnnperf.core import InputError, Source, StepTimeKind, to_json
from gnnperf.memory import Measured, Part, PeakMemory
from gnnperf.predict.step_prediction import RankMemory, StepPrediction, WhatIfPrediction
from gnnperf.report import document, print_summary, write_report
from gnnperf.report.compare.text import StepTooLong, read_threshold
from gnnperf.report.text import bytes_text, memory_lines, time_text
from gnnperf.whatif.findings import Basis, Finding
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.report.page.pages import page_of


def _shown(estimate: StepPrediction) -> str:
    stream = io.StringIO()
    print_summary(estimate, [Path("out/report.html")], Console(file=stream, width=140))
    return stream.getvalue()


def test_prediction_kind_error_shares_ops_and_files_are_shown() -> None:
    shown = _shown(toy_prediction({GEMM_1: 305.0}))
    for part in (
        "step makespan: 370 us", "measured makespan: 185 us; error +100.0 %", "analytic 100.0 %", "compute 82.4 %",
        "every op is covered", "wrote out/report.html",
    ):  # fmt: skip
        assert part in shown
    first = next(line for line in shown.splitlines() if line.startswith("aten::mm"))
    assert first.split() == ["aten::mm", "compute", "2", "305", "us", "405", "us", "220", "us"]


def test_how_sure_a_step_is_stands_with_it() -> None:
    estimate = replace(toy_prediction({GEMM_1: 305.0}), step_time_interval_us=(330.0, 1415.0), interval_level=0.9)
    assert "step makespan: 370 us, 90 % of steps within 330 us to 1.415 ms" in _shown(estimate)


def test_what_is_not_covered_is_named() -> None:
    shown = _shown(toy_prediction({GEMM_1: np.nan}))
    assert "step makespan: at least 165 us" in shown
    assert "not covered: aten::mm (1)" in shown
    assert "nodes by source: 14 analytic, 1 uncovered; uncovered nodes hold 36.4 % of the measured node time" in shown


def test_where_a_network_predicts_it_is_stated_why_it_does_not_isolated() -> None:
    estimate = toy_prediction()
    source, reason = estimate.prediction.source.copy(), estimate.prediction.reasons.copy()
    source[:9], source[9] = Source.GNN, Source.GNN_CALIBRATED
    reason[9] = "op not in the vocabulary"
    blended = replace(estimate, prediction=replace(estimate.prediction, source=source, reason=reason))
    line = "because: 5 analytic (no network in use); 1 gnn_calibrated (op not in the vocabulary)"
    assert line in _shown(blended)
    assert "because" not in _shown(estimate)


def test_names_from_a_trace_are_no_markup() -> None:
    assert "[bold]x[/bold]" in _shown(replace(toy_prediction(), warnings=("[bold]x[/bold]",)))


@pytest.mark.parametrize(
    ("time_us", "sentences"),
    [
        (12.345, "12.35 us"), (12.34567, "12.35 us"), (1234.5678, "1.235 ms"), (1500.0, "1.5 ms"), (2.5e6, "2.5 s"),
        (-1500.0, "-1.5 ms"), (0.001, "0.001 us"), (3.165e-10, "0 us"), (-1e-7, "0 us"), (0.0, "0 us"),
        (None, "unknown"), (math.nan, "unknown"),
    ],
)  # fmt: skip
def test_a_duration_has_four_digits_and_its_unit(time_us: float | None, sentences: str) -> None:
    assert time_text(time_us) == sentences


STRAGGLER = Finding(
    "straggler", "rank 1 is slower", ("it comes last", "by 20 us"), "balance it", Basis.MEASURED,
    "{straggler:{rank:1}}", 20.0, 20.0 / 185.0, True, ("what else it does <b>",),
)  # fmt: skip
UNPRICED = Finding("misaligned_products", "odd sizes", (), "pad", Basis.PREDICTED, "", None, None, False, ("nobody",))


def test_console_reports_gain_evidence_edit_and_remedy() -> None:
    shown = _shown(replace(toy_prediction(), findings=(STRAGGLER, UNPRICED)))
    for line in (
        "finding: straggler: rank 1 is slower; gain at most 20 us (10.8 % of the 185 us step of measured latencies)",
        "  by 20 us", "  edit: {straggler:{rank:1}}, on measured latencies", "  not known: what else it does <b>",
        "  what to do: balance it", "finding: misaligned products: odd sizes; gain not known",
    ):  # fmt: skip
        assert line in shown


def test_nothing_detected_is_stated_and_not_requested_is_silent() -> None:
    assert "no rule finds anything that holds the step up" in _shown(replace(toy_prediction(), findings=()))
    assert "finding" not in _shown(toy_prediction())
    assert "No rule finds anything." in page_of(replace(toy_prediction(), findings=()))
    assert "What holds the step up" not in page_of(toy_prediction())


def test_document_has_every_field() -> None:
    given = json.loads(to_json(document(replace(toy_prediction(), findings=(STRAGGLER, UNPRICED)))))["findings"]
    assert given[0] == {
        "rule": "straggler", "cause": "rank 1 is slower", "basis": "measured",
        "evidence": ["it comes last", "by 20 us"], "remedy": "balance it", "edit": "{straggler:{rank:1}}",
        "gain_us": 20.0, "gain_share": 20.0 / 185.0, "gain_is_upper_bound": True,
        "unknown": ["what else it does <b>"],
    }  # fmt: skip
    assert (given[1]["edit"], given[1]["gain_us"]) == (None, None)
    assert document(toy_prediction())["findings"] is None


MIB = 2**20
PEAK = PeakMemory(
    rank=1, step="ProfilerStep#3", parts_bytes={Part.PARAMETERS: 3 * MIB, Part.ACTIVATIONS: 5 * MIB, Part.ROUNDING: 0},
    at="aten::mm", held_between_steps_bytes=4 * MIB, hidden_bytes=MIB, buckets_bytes=MIB, unknown=("something",),
)  # fmt: skip


def with_memory(measured: Measured | None) -> StepPrediction:
    return replace(toy_prediction(), peak_memory=(RankMemory(PEAK, measured),))


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
    assert memory_lines(toy_prediction()) == []


def test_sizes_transfer_their_unit() -> None:
    assert [bytes_text(n) for n in (512, 2_048, 3 * MIB, 5 * 2**30)] == ["0.5 KiB", "2 KiB", "3 MiB", "5 GiB"]


def _on_device(size: float | None) -> StepPrediction:
    return replace(toy_prediction(), hardware="big_gpu", peak_memory=(RankMemory(PEAK, None, size),))


def test_whether_it_fits_is_one_sentence() -> None:
    fits, too_large = (memory_lines(_on_device(size * MIB))[-1] for size in (12.0, 8.0))
    assert fits.startswith("memory fits: rank 1, the fullest, takes 9 MiB of 12 MiB of big_gpu, 3 MiB left; CUDA's")
    assert too_large.startswith("memory does not fit: rank 1 needs 9 MiB of 8 MiB of big_gpu, 1 MiB too much; CUDA's")
    assert [document(_on_device(n))["peak_memory"][0]["fits"] for n in (12.0 * MIB, 8.0 * MIB, None)] == [
        True, False, None,
    ]  # fmt: skip


def test_what_was_not_found_never_fits_and_may_still_be_too_large() -> None:
    """The tensors that are known are a lower bound."""
    lower_bound = replace(PEAK, missing=("weights", "gradients", "optimizer state"))
    estimates = [
        replace(_on_device(size * MIB), peak_memory=(RankMemory(lower_bound, None, size * MIB),))
        for size in (12.0, 8.0)
    ]
    unknown, too_large = (memory_lines(estimate)[-1] for estimate in estimates)
    assert unknown == (
        "whether memory fits is unknown: the trace does not show gradients, optimizer state and weights; the tensors "
        "that it shows take 9 MiB of 12 MiB of big_gpu on rank 1"
    )
    assert too_large.startswith("memory does not fit: rank 1 needs 9 MiB of 8 MiB of big_gpu")
    assert [document(estimate)["peak_memory"][0]["fits"] for estimate in estimates] == [None, False]
    assert document(estimates[0])["peak_memory"][0]["missing"] == ["weights", "gradients", "optimizer state"]


def test_memory_with_edits_is_reported_with_the_one_without() -> None:
    larger = replace(PEAK, parts_bytes={**PEAK.parts_bytes, Part.ACTIVATIONS: 14 * MIB})
    edited = replace(toy_prediction(), peak_memory=(RankMemory(larger, None),))
    estimate = replace(with_memory(None), whatif=WhatIfPrediction(("batch",), edited, 1, ()))
    assert memory_lines(estimate)[-1] == "what if: peak memory of rank 1: 18 MiB, unedited 9 MiB (+100.0 %)"
    assert document(estimate)["whatif"]["peak_memory"][0]["peak_bytes"] == 18 * MIB


@pytest.fixture(name="before")
def _before(tmp_path: Path) -> Path:
    write_report(toy_prediction(), tmp_path / "before")
    return tmp_path / "before"


@pytest.mark.parametrize("name", ["", "prediction.json"])
def test_no_longer_than_an_earlier_prediction(before: Path, name: str) -> None:
    read_threshold(None, 100.0, str(before / name)).check(toy_prediction({GEMM_1: 305.0}))
    read_threshold(None, 0.0, str(before / name)).check(toy_prediction())
    with pytest.raises(StepTooLong, match=r"is 100\.0 % longer than that of .*before.*, more than 5 %") as error:
        read_threshold(0.2, 5.0, str(before / name)).check(toy_prediction({GEMM_1: 305.0}))
    assert "370 us, more than 0.2 ms" in str(error.value)


def test_two_kinds_of_steps_are_not_compared(before: Path) -> None:
    window = replace(toy_prediction(), step_time_kind=StepTimeKind.WINDOW)
    with pytest.raises(InputError, match="its step is a makespan, the predicted one a window"):
        read_threshold(None, 5.0, str(before)).check(window)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((None, 5.0, None), "max_regression: bad value 5.0. Allowed: with against"),
        ((None, None, "{before}"), "max_regression: no value is set"),
        ((None, 5.0, "no/such"), "no/such: cannot be read"),
        ((None, 5.0, "{before}/nodes.parquet"), "JSON is malformed"),
    ],
)
def test_what_is_no_limit_is_refused_before_the_work(
    before: Path, limits: tuple[float | None, float | None, str | None], message: str
) -> None:
    against = None if limits[2] is None else limits[2].format(before=before)
    with pytest.raises(InputError) as error:
        read_threshold(limits[0], limits[1], against)
    assert message in str(error.value)
    assert error.value.exit_code == 2


def test_of_many_ranks_the_fullest_are_lines() -> None:
    ranks = tuple(
        RankMemory(replace(PEAK, rank=n, parts_bytes={Part.ACTIVATIONS: (n + 1) * MIB}), None) for n in range(20)
    )
    lines = memory_lines(replace(toy_prediction(), peak_memory=ranks))
    assert [line.split(":")[0] for line in lines[:8]] == [f"peak memory of rank {n}" for n in range(12, 20)]
    assert lines[8] == "12 more ranks hold no more than these"
