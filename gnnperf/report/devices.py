"""The step on every device that was requested, as rows of a table."""

from __future__ import annotations

from gnnperf.predict import StepPrediction
from gnnperf.report.text import time_text
from gnnperf.report.throughput import HEADS, device_texts

STEP_HEADS = ("hardware", "placement", "step", "ratio", "interval of the ratio")


def alternative_heads(answer: StepPrediction) -> tuple[str, ...]:
    """Of the columns; throughput and cost where one of the devices has it."""
    return (*STEP_HEADS, *(HEADS[place] for place in _known(answer)))


def alternative_rows(answer: StepPrediction) -> list[tuple[str, ...]]:
    """The traced hardware, predicted the same way, and every device; [] for one device."""
    if not answer.alternatives:
        return []
    known, rows = _known(answer), []
    if answer.traced_prediction_us is not None:
        first = (answer.traced_hardware, "", time_text(answer.traced_prediction_us), "1.000", "")
        rows.append((*first, *("" for _ in known)))
    for one in answer.alternatives:
        bound = "at least " if one.is_lower_bound else ""
        bounds = "" if one.ratio_interval is None else f"{one.ratio_interval[0]:.2f} to {one.ratio_interval[1]:.2f}"
        ratio = "" if one.ratio is None else f"{one.ratio:.3f}"
        step = (one.hardware, one.placement, f"{bound}{time_text(one.step_time_us)}", ratio, bounds)
        rows.append((*step, *(device_texts(one.throughput)[place] for place in known)))
    return rows


def _known(answer: StepPrediction) -> list[int]:
    """Which of HEADS some device has."""
    cells = [device_texts(one.throughput) for one in answer.alternatives]
    return [place for place in range(len(HEADS)) if any(row[place] for row in cells)]
