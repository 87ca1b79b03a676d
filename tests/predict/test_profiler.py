"""The step without the profiler: on recorded H200 runs, whose steps were timed without it as well."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gnnperf.cli import main
from gnnperf.core import InputError
from gnnperf.graph import IN_STEPS, TYPICAL_ON_CPU, TYPICAL_ON_GPU
from gnnperf.hardware import load_device
from gnnperf.predict import StepPrediction, predict
from gnnperf.predict.profiler import recorded_profiler
from gnnperf.predict.request import Mode, Profiler, Request, TraceEvidence
from gnnperf.report.text import comparison, profiler_line

H200 = Path(__file__).parents[2] / "datasets" / "h200"
HOST_BOUND = H200 / "library_bert_s512_b16_bfloat16_x1_lo" / "1"  # 16.5 ms, 22.9 ms with the profiler
DEVICE_BOUND = H200 / "library_resnet50_s224_b64_bfloat16_sgd_x1_lo" / "1"  # 28.5 ms, 28.9 ms


def predicted(trace: Path, profiler: Profiler = Profiler.keep) -> StepPrediction:
    return predict(Request(trace=trace, profiler=profiler, cache_dir=None))


def test_a_host_bound_step_is_shorter_without_the_profiler_as_it_was_timed() -> None:
    result = predicted(HOST_BOUND)
    assert result.step_time_error == pytest.approx(0.0, abs=0.01)  # the headline stays what the trace measured
    plain = result.without_profiler
    assert plain is not None and not plain.is_removed
    assert plain.measured_us == pytest.approx(16_496, abs=1) and plain.error == pytest.approx(0.0, abs=0.05)
    (line,) = profiler_line(result)
    assert line.startswith("without the profiler: about 16.") and "profiler=remove" in line


def test_removing_the_profiler_predicts_the_same_step_and_compares_it_with_the_one_timed_without() -> None:
    result = predicted(HOST_BOUND, Profiler.remove)
    plain = predicted(HOST_BOUND).without_profiler
    assert plain is not None and result.step_time_us == pytest.approx(plain.step_time_us, rel=1e-6)
    assert result.measured_step_time_us == plain.measured_us and profiler_line(result) == ()
    assert result.step_time_interval_us is None
    assert comparison(result).startswith("without the profiler; measured without it: 16.5 ms, error")


def test_a_device_bound_step_has_no_line() -> None:
    result = predicted(DEVICE_BOUND)
    assert result.without_profiler is None and profiler_line(result) == ()


def test_a_trace_without_a_card_gets_the_typical_cost(tmp_path: Path) -> None:
    assert recorded_profiler(tmp_path, on_gpu=True).cost == TYPICAL_ON_GPU.times(IN_STEPS)
    assert recorded_profiler(tmp_path / "rank_0.json", on_gpu=False).cost == TYPICAL_ON_CPU.times(IN_STEPS)
    card = json.loads((HOST_BOUND / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(card | {"step_time": {"without_profiler": {"median_us": "fast"}}}))
    both = recorded_profiler(tmp_path, on_gpu=True)
    measured_us = card["ranks"][0]["profiler_cost"]["op_us"]
    assert both.unprofiled_us is None  # no number
    assert both.cost.op_us == pytest.approx(IN_STEPS * (measured_us * TYPICAL_ON_GPU.op_us) ** 0.5)


@pytest.mark.parametrize(("settings", "message"), [
    ({"evidence": TraceEvidence.none}, "has no use in a prediction without measurements of the trace"),
    ({"mode": Mode.analytic}, "has no use in mode=analytic"),
])  # fmt: skip
def test_removing_the_profiler_needs_measurements(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(Request(trace=HOST_BOUND, profiler=Profiler.remove, cache_dir=None, **settings))


def test_a_malformed_cost_is_a_warning_unless_it_is_needed(tmp_path: Path) -> None:
    shutil.copytree(HOST_BOUND, tmp_path / "run")
    card = json.loads((HOST_BOUND / "run.json").read_text())
    card["ranks"][0]["profiler_cost"]["op_us"] = -1.0
    (tmp_path / "run" / "run.json").write_text(json.dumps(card))
    result = predicted(tmp_path / "run")
    assert result.without_profiler is None and any("op_us is -1.0" in one for one in result.warnings)
    with pytest.raises(InputError, match=r"op_us is -1\.0"):
        predicted(tmp_path / "run", Profiler.remove)


def test_other_hardware_is_predicted_from_the_shortened_step() -> None:
    kept, removed = (predict(Request(trace=HOST_BOUND, hardware=load_device("h100_sxm"), profiler=one, cache_dir=None))
                     for one in (Profiler.keep, Profiler.remove))  # fmt: skip
    assert removed.step_time_us < 0.9 * kept.step_time_us  # then kernels are the bottleneck
    assert any("profiler=remove" in note for note in removed.notes)


def test_an_imported_run_keeps_what_its_card_states(tmp_path: Path) -> None:
    assert main(["import", str(HOST_BOUND), "--out", str(tmp_path / "imported")]) == 0
    plain = predicted(tmp_path / "imported").without_profiler
    own = predicted(HOST_BOUND).without_profiler
    assert plain is not None and own is not None
    assert (plain.step_time_us, plain.measured_us) == pytest.approx((own.step_time_us, own.measured_us))


def test_a_step_that_no_cost_leads_to_is_named_with_both_times(tmp_path: Path) -> None:
    shutil.copytree(HOST_BOUND, tmp_path / "run")
    card = json.loads((HOST_BOUND / "run.json").read_text())
    card["step_time"]["without_profiler"]["median_us"] = 1234.0
    (tmp_path / "run" / "run.json").write_text(json.dumps(card))
    result = predicted(tmp_path / "run", Profiler.remove)
    given = f"to take {result.step_time_us / 1e3:.4g} ms and was timed at 1.234 ms: this is the nearest one with 0.25"
    assert given in result.warnings[0]
    plain, removed = predicted(HOST_BOUND).without_profiler, result.without_profiler
    assert plain is not None and removed is not None
    assert removed.cost.op_us == pytest.approx(4 * plain.cost.op_us)  # the most that may be taken out
    assert not any("the nearest one" in one for one in predicted(HOST_BOUND, Profiler.remove).warnings)


def test_a_step_that_was_never_timed_without_the_profiler_has_no_error(tmp_path: Path) -> None:
    shutil.copytree(HOST_BOUND, tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    result = predicted(tmp_path / "run", Profiler.remove)
    assert result.measured_step_time_us is None and result.step_time_us < result.traced_step_time_us
    assert comparison(result) == "without the profiler; measured with it: 22.88 ms"
