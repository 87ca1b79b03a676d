"""Rates, utilization and cost of a step time, computed by hand."""

from collections.abc import Callable

import pytest

from gnnperf.core import InputError
from gnnperf.generate import StepWork
from gnnperf.predict.throughput import PriceConfig, RunConfig, Throughput

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
