"""The fit of memory-bound kernels."""

import numpy as np
import pandas as pd
import pytest
from round_device import DEVICE

from gnnperf.analytic.memory_bound.constants import EventGap
from research.fitting.memory import START, call_times_us, fit_memory_constants, predicted_us


def made_rows(stream_share: float) -> pd.DataFrame:
    """An elementwise, a softmax and a layer norm table as the model states they are, with a known bandwidth."""
    truth = {**START.__dict__, "stream_share": stream_share}
    constants = type(START)(**{**truth, "gaps": dict.fromkeys(("add", "softmax", "ln"), EventGap(20.0, 0.5))})
    rng = np.random.default_rng(0)
    parts = []
    for table, tensors in (("add", 3), ("softmax", 2), ("ln", 2)):
        rows, columns = np.exp(rng.uniform(0, 11, 400)).round(), np.exp(rng.uniform(3, 8, 400)).round()
        part = pd.DataFrame({"table": table, "device": "round", "rows": rows, "columns": columns,
                             "moved_bytes": tensors * 4.0 * rows * columns})  # fmt: skip
        parts.append(part.assign(latency_us=predicted_us(part, DEVICE, constants)))
    return pd.concat(parts, ignore_index=True)


def test_the_fit_finds_the_bandwidth_it_was_given() -> None:
    rows = made_rows(stream_share=0.6)
    fitted = fit_memory_constants(rows, {"round": DEVICE}, "made up")
    assert fitted.stream_share == pytest.approx(0.6, rel=0.02)
    assert fitted.gaps["add"].call_us == pytest.approx(call_times_us(rows)["round", "add"])
    errors = np.abs(predicted_us(rows, DEVICE, fitted) / rows["latency_us"].to_numpy() - 1)
    assert errors.mean() < 0.02
    assert fitted.provenance == "made up"
