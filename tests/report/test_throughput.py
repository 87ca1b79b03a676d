"""Throughput, utilization and cost on console, page, notebook card and in prediction.json."""

import io
from dataclasses import replace
from html import unescape

from rich.console import Console

from gnnperf.generate import StepWork
from gnnperf.hardware import load_device
from gnnperf.predict import StepPrediction, Throughput
from gnnperf.report.console import summary
from gnnperf.report.json_document import document
from gnnperf.report.notebook import Estimate
from gnnperf.report.throughput import alternative_heads, alternative_rows, cost_text, number_text, throughput_lines
from tests.predict.predictions import toy_prediction
from tests.report.page.pages import page_of

# 185 us on two devices: 3.7 samples of 370 tokens a step are 20,000 samples/s and 2 million tokens/s.
WORK = StepWork(samples=3.7, tokens=370.0, model_flops=37e9, hardware_flops=55.5e9, formula="six per parameter")


def _rates(**changes: object) -> Throughput:
    given = Throughput(185.0, 2, WORK, peak_flops_per_s=200e12, power_limit_w=500.0,
                          steps=36e9 / 185.0, usd_per_gpu_hour=2.0)  # fmt: skip
    return replace(given, **changes)  # type: ignore[arg-type]


def _prediction(**changes: object) -> StepPrediction:
    return replace(toy_prediction(), throughput=_rates(**changes), device=load_device("v100_sxm2_32gb"))


def test_rates_utilization_and_cost_are_three_lines() -> None:
    assert throughput_lines(_prediction()) == [
        "throughput: 20,000 samples/s (10,000 per GPU), 2,000,000 tokens/s (1,000,000 per GPU)",
        "utilization: MFU 50.0 %, HFU 75.0 % of 200 TFLOP/s per GPU: six per parameter",
        "run of 194,594,595 steps: 10 hours, 20 GPU-hours, $40 at $2 per GPU-hour, at most 10 kWh "
        "(boards at their power limit, without hosts and cooling)",
    ]


def test_without_a_run_the_price_of_tokens_is_given() -> None:
    # 2 devices x $2 an hour over 2 million tokens/s x 3,600 s: $4 / 7,200 million tokens
    assert cost_text(_prediction(steps=None)) == "cost: $0.0005556 per million tokens at $2 per GPU-hour"
    assert cost_text(_prediction(steps=None, usd_per_gpu_hour=None)) == ""


def test_a_lower_bound_of_the_step_is_an_upper_bound_of_throughput() -> None:
    first, shares, cost = throughput_lines(replace(_prediction(), is_lower_bound=True))
    assert first.startswith("throughput: at most 20,000 samples/s")
    assert shares.startswith("utilization: at most MFU 50.0 %")
    assert "steps: at least 10 hours" in cost
    assert "kWh" not in cost


def test_unknown_work_prints_nothing() -> None:
    unknown = replace(toy_prediction(), throughput=Throughput(185.0, 2, StepWork()))
    assert throughput_lines(unknown) == []
    assert throughput_lines(toy_prediction()) == []


def test_page_has_cards_of_throughput_in_place_of_none() -> None:
    page = page_of(replace(_prediction(), measured_step_time_us=None, step_time_interval_us=None))
    assert ">none<" not in page
    assert '<dd id="throughput">2,000,000&nbsp;tokens/s</dd>' in page
    assert '<dd id="utilization">MFU 50.0&nbsp;%, HFU 75.0&nbsp;%</dd>' in page
    assert '<dd id="cost">$40</dd>' in page


def test_console_and_card_have_the_lines() -> None:
    prediction = _prediction()
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary(prediction))
    shown, card = console.export_text(), unescape(Estimate(prediction)._repr_html_())
    for line in throughput_lines(prediction):
        assert line in shown
        assert line in card


def test_document_has_every_number() -> None:
    given = document(_prediction())["throughput"]
    assert given["tokens_per_s_per_gpu"] == 1e6
    assert given["mfu"] == 0.5
    assert given["hfu"] == 0.75
    assert given["run"]["gpu_hours"] == 20.0
    assert given["run"]["cost_usd"] == 40.0
    assert document(_prediction(steps=None))["throughput"]["run"] is None


def test_table_of_devices_has_columns_that_some_device_knows() -> None:
    device = replace(toy_prediction(), throughput=_rates(work=replace(WORK, samples=None)))
    other = replace(toy_prediction(), hardware="slow", step_time_us=370.0)
    prediction = replace(toy_prediction(), alternatives=(device, other))
    assert alternative_heads(prediction)[5:] == ("tokens/s per GPU", "MFU", "USD per million tokens")
    assert [row[5:] for row in alternative_rows(prediction)] == [("1,000,000", "50.0 %", "0.0005556"), ("", "", "")]


def test_numbers_have_four_digits() -> None:
    assert [number_text(value) for value in (0.0, 1e-5, 0.123456, 12.3456, 1234.5, 15e12)] == [
        "0", "1e-05", "0.1235", "12.35", "1,234", "1.5e+13",
    ]  # fmt: skip
