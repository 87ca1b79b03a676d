"""Throughput and cost of predicted steps: plans, traces, edits."""

from pathlib import Path
from typing import Any

import pytest

from gnnperf.core import InputError
from gnnperf.generate import read_plan
from gnnperf.hardware import conf_dir, load_device, read_yaml
from gnnperf.predict.api import predict
from gnnperf.predict.request import Request, check
from gnnperf.predict.step_rates import peak_flops_per_s, samples_of_card
from gnnperf.predict.throughput import PriceConfig, RunConfig, Throughput

SMALL = {
    "name": "small",
    "model": {"layers": 2, "hidden": 64, "heads": 2, "sequence": 32, "vocabulary": 100},
    "parallelism": {"data": 4},
    "schedule": {"global_batch": 8, "micro_batch": 2, "recompute": "full"},
}


def _rates(request: Request) -> Throughput:
    given = predict(request).throughput
    assert given is not None
    return given


def _planned(**keys: Any) -> Request:
    return Request(plan=SMALL, hardware=load_device("a100_sxm_80gb"), findings=False, **keys)


def test_plan_has_samples_tokens_and_utilization_of_its_device() -> None:
    given = _rates(_planned())
    assert given.ranks == 4
    assert given.samples_per_s == pytest.approx(8 / given.step_us * 1e6)
    assert given.tokens_per_s == pytest.approx(8 * 32 / given.step_us * 1e6)
    assert given.peak_flops_per_s == 312e12  # float16 with matrix units
    assert given.mfu is not None and given.hfu is not None and given.mfu < given.hfu < 1


def test_run_and_price_give_hours_and_cost() -> None:
    given = _rates(_planned(run=RunConfig(tokens=256 * 1000), price=PriceConfig(usd_per_gpu_hour=3.0)))
    assert given.steps == 1000
    assert given.gpu_hours == pytest.approx(4000 * given.step_us / 3600e6)
    assert given.cost_usd == pytest.approx(3.0 * 4000 * given.step_us / 3600e6)
    assert given.power_limit_w == 400.0


def test_convolutional_plan_counts_the_flops_of_its_ops() -> None:
    plan = read_plan(read_yaml(conf_dir("plan") / "resnet18.yaml"), "resnet18")
    given = _rates(Request(plan=plan, hardware=load_device("a100_sxm_80gb"), findings=False))
    assert given.work.samples == 256
    # 1.81 G multiply-adds forward (He et al. 2016 with torchvision's shapes), twice that backward, less the first input
    assert given.work.model_flops == pytest.approx(256 * 3 * 2 * 1.81e9, rel=0.03)
    assert given.mfu == given.hfu


def test_trace_without_a_batch_has_hardware_utilization_only(trace: Path) -> None:
    given = _rates(Request(trace=trace))
    assert (given.samples_per_s, given.tokens_per_s, given.mfu) == (None, None, None)
    # two products of 2 x 512^3 FLOPs in 185 us on two V100 of 15.7 TFLOP/s in float32
    assert given.work.hardware_flops == 4 * 512**3
    assert given.hfu == pytest.approx(4 * 512**3 / 185e-6 / 2 / load_device("v100_sxm2_32gb").flops_per_s["float32"])


def test_trace_takes_its_samples_from_the_user_and_more_ranks_scale_them(trace: Path) -> None:
    run, edit = RunConfig(samples_per_step=8.0), [{"world_size": {"ranks": 8, "data_parallel": 2}}]
    estimate = predict(Request(trace=trace, run=run, whatif=edit))
    assert estimate.throughput is not None and estimate.whatif is not None
    edited = estimate.whatif.prediction.throughput
    assert estimate.throughput.samples_per_s == pytest.approx(8 / estimate.step_time_us * 1e6)
    assert edited is not None and (edited.work.samples, edited.ranks) == (32.0, 8)


def test_batch_edit_of_a_plan_scales_samples_and_flops() -> None:
    estimate = predict(_planned(whatif=[{"batch": {"factor": 2}}]))
    assert estimate.throughput is not None and estimate.whatif is not None
    edited, unedited = estimate.whatif.prediction.throughput, estimate.throughput.work
    assert edited is not None and unedited.model_flops is not None and unedited.hardware_flops is not None
    assert (edited.work.samples, edited.work.model_flops) == (16.0, 2 * unedited.model_flops)
    assert edited.work.hardware_flops == pytest.approx(2 * unedited.hardware_flops)


def test_run_of_tokens_without_tokens_of_a_step_is_refused_before_the_work(trace: Path) -> None:
    recommender = read_plan(read_yaml(conf_dir("plan") / "dlrm_benchmark.yaml"), "dlrm_benchmark")
    run = RunConfig(tokens=1e9)
    for request in (Request(trace=trace, run=run), Request(plan=recommender, hardware=load_device("t4"), run=run)):
        with pytest.raises(InputError, match=r"run\.tokens_per_step"):
            check(request)


def test_run_of_samples_of_a_trace_without_a_card_is_refused(trace: Path) -> None:
    with pytest.raises(InputError, match=r"run\.samples_per_step"):
        predict(Request(trace=trace, run=RunConfig(samples=1e9)))


@pytest.mark.parametrize(
    ("card", "samples"),
    [
        ({"batch": 8, "parallelism": {"dp": 4}}, 32.0),
        ({"batch": 8, "parallelism": {"dp": 2, "tp": 2}}, 16.0),
        ({"batch": 8}, 32.0),
        ({"batch": None}, None),
        ({}, None),
    ],
)
def test_samples_of_a_card_count_ranks_with_one_batch_once(card: dict[str, object], samples: float | None) -> None:
    assert samples_of_card(card, 4) == samples


def test_peak_is_that_of_matrix_units_in_the_dtype() -> None:
    assert peak_flops_per_s(load_device("h100_sxm"), "bfloat16") == 989.4e12
    assert peak_flops_per_s(load_device("h100_sxm"), "float32") == 67e12
