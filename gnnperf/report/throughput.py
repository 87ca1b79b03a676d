"""Throughput, utilization and cost: as sentences for the console, page and notebook, and as JSON."""

from typing import Any

from gnnperf.predict import StepPrediction, Throughput
from gnnperf.report.text import share_text, time_text

TERA = 1e12
ENERGY = "boards at their power limit, without hosts and cooling"
HEADS = ("tokens/s per GPU", "samples/s per GPU", "MFU", "USD per million tokens")  # of a table of devices


def number_text(value: float) -> str:
    """Four digits, thousands apart; very large and very small numbers with a power of ten."""
    if value >= 1e12 or 0 < value < 1e-4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def rate_text(given: Throughput) -> str:
    """Tokens, else samples per second; "" unknown."""
    for rate, unit in ((given.tokens_per_s, "tokens/s"), (given.samples_per_s, "samples/s")):
        if rate is not None:
            return f"{number_text(rate)} {unit}"
    return ""


def utilization_text(given: Throughput) -> str:
    """MFU and HFU; "" unknown."""
    known = [f"{name} {share_text(value)}" for name, value in (("MFU", given.mfu), ("HFU", given.hfu))
             if value is not None]  # fmt: skip
    return ", ".join(known)


def throughput_lines(prediction: StepPrediction) -> list[str]:
    """Rates, utilization with its formula, and the run's cost; with edits theirs as well; nothing where unknown."""
    lines = _lines(prediction, "")
    return lines if prediction.whatif is None else [*lines, *_lines(prediction.whatif.prediction, "what if: ")]


def _lines(prediction: StepPrediction, prefix: str) -> list[str]:
    given = prediction.throughput
    if given is None:
        return []
    at_most, device = "at most " if prediction.is_lower_bound else "", unit_of(prediction)
    pairs = (
        (given.samples_per_s, given.samples_per_s_per_gpu, "samples/s"),
        (given.tokens_per_s, given.tokens_per_s_per_gpu, "tokens/s"),
    )
    rates = [f"{at_most}{number_text(whole)} {unit} ({number_text(each)} per {device})" for whole, each, unit in pairs
             if whole is not None and each is not None]  # fmt: skip
    lines = [f"{prefix}throughput: {', '.join(rates)}"] if rates else []
    shares, peak = utilization_text(given), given.peak_flops_per_s
    if shares and peak is not None:
        counted = f": {given.work.formula}" if given.work.formula and not prefix else ""
        lines.append(
            f"{prefix}utilization: {at_most}{shares} of {number_text(peak / TERA)} TFLOP/s per {device}{counted}"
        )
    cost = cost_text(prediction)
    return [*lines, *([f"{prefix}{cost}"] if cost else [])]


def unit_of(prediction: StepPrediction) -> str:
    """What a rate is given per."""
    return "rank" if prediction.device is not None and prediction.device.kind == "cpu" else "GPU"


def cost_text(prediction: StepPrediction) -> str:
    """The run's steps, hours, accelerator-hours, cost and energy; without a run the price of tokens; "" neither."""
    given = prediction.throughput
    if given is None:
        return ""
    at_least, unit = "at least " if prediction.is_lower_bound else "", unit_of(prediction)
    price = None if given.usd_per_gpu_hour is None else f"at ${given.usd_per_gpu_hour:g} per {unit}-hour"
    if given.gpu_hours is None or given.run_hours is None or given.steps is None:
        for usd, work in ((given.usd_per_million_tokens, "tokens"), (given.usd_per_million_samples, "samples")):
            if usd is not None:
                return f"cost: {at_least}${number_text(usd)} per million {work} {price}"
        return ""
    parts = [f"{at_least}{number_text(given.run_hours)} hours, {number_text(given.gpu_hours)} {unit}-hours"]
    if given.cost_usd is not None:
        parts.append(f"${number_text(given.cost_usd)} {price}")
    if given.most_energy_kwh is not None and not prediction.is_lower_bound:
        parts.append(f"at most {number_text(given.most_energy_kwh)} kWh ({ENERGY})")
    return f"run of {number_text(given.steps)} steps: {', '.join(parts)}"


def device_texts(given: Throughput | None) -> tuple[str, ...]:
    """HEADS of one device."""
    if given is None:
        return ("",) * len(HEADS)
    mfu = "" if given.mfu is None else share_text(given.mfu)
    numbers = (given.tokens_per_s_per_gpu, given.samples_per_s_per_gpu, given.usd_per_million_tokens)
    tokens, samples, usd = ("" if value is None else number_text(value) for value in numbers)
    return tokens, samples, mfu, usd


WORK_KEYS = {"samples": "samples_per_step", "tokens": "tokens_per_step", "model_flops": "model_flops_per_step",
             "hardware_flops": "hardware_flops_per_step"}  # fmt: skip
RATE_KEYS = ("samples_per_s", "samples_per_s_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "peak_flops_per_s",
             "mfu", "hfu", "gpu_hours_per_step", "usd_per_gpu_hour", "usd_per_million_tokens",
             "usd_per_million_samples", "power_limit_w")  # fmt: skip
RUN_KEYS = {"steps": "steps", "run_hours": "hours", "gpu_hours": "gpu_hours", "cost_usd": "cost_usd",
            "most_energy_kwh": "most_energy_kwh"}  # fmt: skip


def throughput_document(given: Throughput | None) -> dict[str, Any] | None:
    """Every key of prediction.json's `throughput`; null: unknown."""
    if given is None:
        return None
    return {
        **{key: getattr(given.work, name) for name, key in WORK_KEYS.items()},
        "flops_formula": given.work.formula or None,
        **{key: getattr(given, key) for key in RATE_KEYS},
        "run": None if given.steps is None else {key: getattr(given, name) for name, key in RUN_KEYS.items()},
    }


# The step on every device that was requested, as rows of a table.

STEP_HEADS = ("hardware", "placement", "step", "ratio", "interval of the ratio")


def alternative_heads(prediction: StepPrediction) -> tuple[str, ...]:
    """Of the columns; throughput and cost where one of the devices has it."""
    return (*STEP_HEADS, *(HEADS[place] for place in _known(prediction)))


def alternative_rows(prediction: StepPrediction) -> list[tuple[str, ...]]:
    """The traced hardware, predicted the same way, and every device; [] for one device."""
    if not prediction.alternatives:
        return []
    known, rows = _known(prediction), []
    if prediction.traced_prediction_us is not None:
        first = (prediction.traced_hardware, "", time_text(prediction.traced_prediction_us), "1.000", "")
        rows.append((*first, *("" for _ in known)))
    for one in prediction.alternatives:
        bound = "at least " if one.is_lower_bound else ""
        bounds = "" if one.ratio_interval is None else f"{one.ratio_interval[0]:.2f} to {one.ratio_interval[1]:.2f}"
        ratio = "" if one.step_time_ratio is None else f"{one.step_time_ratio:.3f}"
        step = (one.hardware, one.placement, f"{bound}{time_text(one.step_time_us)}", ratio, bounds)
        rows.append((*step, *(device_texts(one.throughput)[place] for place in known)))
    return rows


def _known(prediction: StepPrediction) -> list[int]:
    """Which of HEADS some device has."""
    cells = [device_texts(one.throughput) for one in prediction.alternatives]
    return [place for place in range(len(HEADS)) if any(row[place] for row in cells)]
