"""Constants come back from times that were made of them."""

from dataclasses import replace

import pandas as pd
import pytest

from gnnperf.analytic.memory_bound.constants import default_memory_constants
from research.fitting.recorded import TRAIN, changed, fitted, forms_us
from tests.analytic.kernels.calls import call


def test_a_constant_is_fitted_on_the_calls_that_it_decides() -> None:
    casts = [replace(call("aten::copy_", [[n], [n]]), moved_bytes=6.0 * n) for n in (10**6, 10**7)]
    rows = pd.DataFrame({"call": [*casts, call("aten::copy_", [[10**7], [10**7]])], "family": "copy", "kernels": 1})
    rows = rows.assign(device="h200", part=TRAIN, total_us=1.0)
    memory = default_memory_constants()
    times = forms_us(rows, changed(memory, "index_cycles", "cast", 300.0))
    rows["us"] = [*times[:2], 1e6]  # the last one has no cast

    cast = ("index_cycles", "cast")
    value = fitted("cast", 100.0, lambda own, tried: forms_us(own, changed(memory, *cast, tried)), rows)
    assert value == pytest.approx(300.0, rel=1e-3)
