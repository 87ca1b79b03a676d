"""Throughput and cost: by hand of a step time; of predicted steps of plans, traces and edits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnperf.core import InputError
from gnnperf.generate import StepWork, read_plan
from gnnperf.hardware import conf_dir, load_device, read_yaml
from gnnperf.predict import Request, check, predict
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


# A step of 2 s on 8 devices: 16 samples of 1,000 tokens, 8e15 model FLOPs, 10e15 with recomputation.
STEP_US = 2e6
WORK = StepWork(samples=16.0, tokens=16_000.0, model_flops=8e15, hardware_flops=10e15, dtype="bfloat16")


def test_rates_are_work_over_step_time_and_ranks() -> None:
    given = Throughput(STEP_US, 8, WORK)
    assert given.samples_per_s == 8.0
    assert given.samples_per_s_per_gpu == 1.0
    assert given.tokens_per_s == 8000.0
    assert given.tokens_per_s_per_gpu == 1000.0


def test_utilization_counts_recomputation_as_hardware_flops_only() -> None:
    given = Throughput(STEP_US, 8, WORK, peak_flops_per_s=1e15)
    assert given.mfu == 0.5  # 8e15 / 2 s / 8 devices / 1e15
    assert given.hfu == 0.625


def test_a_run_of_tokens_costs_its_accelerator_hours() -> None:
    run = RunConfig(tokens=16e6 * 1.8)  # 1,800 steps of 2 s: one hour
    given = Throughput(STEP_US, 8, WORK, power_limit_w=700.0, steps=run.num_steps(WORK), usd_per_gpu_hour=2.5)
    assert given.steps == 1800.0
    assert given.run_hours == pytest.approx(1.0)
    assert given.gpu_hours == pytest.approx(8.0)
    assert given.cost_usd == pytest.approx(20.0)
    assert given.most_energy_kwh == pytest.approx(5.6)  # 8 h x 0.7 kW
    assert given.usd_per_million_tokens == pytest.approx(20.0 / 28.8)
    assert given.usd_per_million_samples == pytest.approx(20.0 / 28.8e-3)


def test_a_run_of_steps_needs_no_tokens() -> None:
    given = Throughput(STEP_US, 8, StepWork(), steps=900.0)
    assert given.gpu_hours == pytest.approx(4.0)
    assert given.tokens_per_s is None
    assert given.cost_usd is None


def test_a_begun_step_of_a_run_is_a_whole_one() -> None:
    assert RunConfig(samples=17).num_steps(WORK) == 2.0


def test_unknown_work_stays_unknown() -> None:
    given = Throughput(STEP_US, 8, StepWork(), peak_flops_per_s=1e15, usd_per_gpu_hour=1.0)
    assert (given.samples_per_s, given.tokens_per_s, given.mfu, given.hfu) == (None, None, None, None)
    assert (given.steps, given.gpu_hours, given.most_energy_kwh, given.usd_per_million_tokens) == (None,) * 4


def test_utilization_without_a_peak_is_unknown() -> None:
    assert Throughput(STEP_US, 8, WORK).mfu is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunConfig(tokens=1e9).num_steps(StepWork(samples=16.0)), r"run\.tokens_per_step"),
        (lambda: RunConfig(tokens=1e9, steps=100), "one of tokens, samples, steps"),
        *((lambda given=given: RunConfig(**given), "a number above 0")
          for given in ({"tokens": 0.0}, {"steps": -1.0}, {"samples_per_step": float("inf")})),
        (lambda: PriceConfig(usd_per_gpu_hour=-1.0), "0 or more"),
    ],
)  # fmt: skip
def test_what_is_no_run_or_price_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_tokens_of_a_step_from_the_user_fill_in_what_is_unknown_only() -> None:
    run = RunConfig(tokens_per_step=500.0, samples_per_step=3.0)
    work = run.completed(StepWork(samples=16.0))
    assert (work.tokens, work.samples) == (500.0, 16.0)
