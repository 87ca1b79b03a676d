"""Throughput, utilization and cost of a step time: pure arithmetic, for predictions, edits and searches.

    samples/s              samples of a step / step time               per GPU: over the ranks of the job
    MFU                    model FLOPs / (step time x ranks x peak)    model FLOPs: without recomputation
    HFU                    hardware FLOPs / (step time x ranks x peak) hardware FLOPs: with it
    accelerator-hours      steps x step time x ranks
    energy, upper bound    accelerator-hours x power limit of the board

Chowdhery et al. 2022 (arXiv 2204.02311, appendix B) define both utilizations; `gnnperf.generate` counts the FLOPs.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnnperf.core import InputError, require, require_one

if TYPE_CHECKING:
    from gnnperf.generate import StepWork

US_PER_S, US_PER_HOUR, W_PER_KW = 1e6, 3600e6, 1e3
MILLION = 1e6


@dataclass
class RunConfig:
    """How long a training run is (not frozen: Hydra composes into it). At most one of tokens, samples and steps."""

    tokens: float | None = None  # of the run; None: of no interest
    samples: float | None = None  # of the run; None: of no interest
    steps: float | None = None  # of the run; None: of no interest
    tokens_per_step: float | None = None  # over all ranks, where the trace does not state it; a plan states it
    samples_per_step: float | None = None  # over all ranks, where the trace does not state it; a plan states it

    def __post_init__(self) -> None:
        """Refuse values that cannot be."""
        for name in ("tokens", "samples", "steps", "tokens_per_step", "samples_per_step"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"run.{name}", value, "a number above 0")
        if any(each is not None for each in (self.tokens, self.samples, self.steps)):
            require_one("run", tokens=self.tokens, samples=self.samples, steps=self.steps)

    def completed(self, work: "StepWork") -> "StepWork":
        """The work of a step, with what the user states where it is unknown."""
        return replace(
            work,
            tokens=self.tokens_per_step if work.tokens is None else work.tokens,
            samples=self.samples_per_step if work.samples is None else work.samples,
        )

    def num_steps(self, work: "StepWork") -> float | None:
        """Steps of the run; None: no run is requested.

        Raises:
            InputError: the run is given in tokens or samples, and how many a step has is unknown.
        """
        if self.steps is not None:
            return self.steps
        for name in ("tokens", "samples"):
            total, of_step = getattr(self, name), getattr(work, name)
            if total is not None and of_step is None:
                raise InputError(f"how many {name} a step has is unknown", where=f"run.{name}", allowed="run.steps",
                                 remedy=f"pass run.{name}_per_step=NUMBER, over all ranks")  # fmt: skip
            if total is not None:
                return float(math.ceil(total / of_step))
        return None


@dataclass
class PriceConfig:
    """What an accelerator costs (not frozen: Hydra composes into it). None is shipped."""

    usd_per_gpu_hour: float | None = None  # US dollars per device and hour; None: unknown, and no cost is given

    def __post_init__(self) -> None:
        """Refuse values that cannot be."""
        price = self.usd_per_gpu_hour
        require(price is None or 0 <= price < math.inf, "price.usd_per_gpu_hour", price, "0 or more")


@dataclass(frozen=True)
class Throughput:
    """A step time as rates, utilization and cost. None: unknown."""

    step_us: float  # of one step
    ranks: int  # devices of the job
    work: "StepWork"  # of the step, over all ranks
    peak_flops_per_s: float | None = None  # of one device, in the dtype of the work
    power_limit_w: float | None = None  # of one device
    steps: float | None = None  # of the requested run
    usd_per_gpu_hour: float | None = None  # price of one device

    @property
    def samples_per_s(self) -> float | None:
        """Of the job."""
        return self._per_s(self.work.samples)

    @property
    def tokens_per_s(self) -> float | None:
        """Of the job."""
        return self._per_s(self.work.tokens)

    @property
    def samples_per_s_per_gpu(self) -> float | None:
        """Of one device."""
        return product(self.samples_per_s, 1.0 / self.ranks)

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """Of one device."""
        return product(self.tokens_per_s, 1.0 / self.ranks)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization, 0 to 1."""
        return self._utilization(self.work.model_flops)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilization, 0 to 1."""
        return self._utilization(self.work.hardware_flops)

    @property
    def run_hours(self) -> float | None:
        """Wall-clock time of the run's steps, without pauses between them."""
        return product(self.steps, self.step_us / US_PER_HOUR)

    @property
    def gpu_hours(self) -> float | None:
        """Accelerator-hours of the run."""
        return product(self.run_hours, self.ranks)

    @property
    def gpu_hours_per_step(self) -> float:
        """Accelerator-hours of one step."""
        return self.step_us / US_PER_HOUR * self.ranks

    @property
    def cost_usd(self) -> float | None:
        """Of the run."""
        return product(self.gpu_hours, self.usd_per_gpu_hour)

    @property
    def usd_per_million_tokens(self) -> float | None:
        """Price of throughput, whatever the run's length."""
        return self._usd_per_million(self.work.tokens)

    @property
    def usd_per_million_samples(self) -> float | None:
        """The same of samples."""
        return self._usd_per_million(self.work.samples)

    @property
    def most_energy_kwh(self) -> float | None:
        """Upper bound of the run's energy: every board at its power limit all the time; without hosts and cooling."""
        return product(product(self.gpu_hours, self.power_limit_w), 1.0 / W_PER_KW)

    def _per_s(self, quantity: float | None) -> float | None:
        return None if quantity is None or self.step_us <= 0 else quantity / self.step_us * US_PER_S

    def _utilization(self, flops: float | None) -> float | None:
        rate = self._per_s(flops)
        return None if rate is None or not self.peak_flops_per_s else rate / self.ranks / self.peak_flops_per_s

    def _usd_per_million(self, quantity: float | None) -> float | None:
        usd = product(self.usd_per_gpu_hour, self.gpu_hours_per_step)
        return None if usd is None or not quantity else usd / quantity * MILLION


def product(left: float | None, right: float | None) -> float | None:
    """None: one of them is unknown."""
    return None if left is None or right is None else left * right
