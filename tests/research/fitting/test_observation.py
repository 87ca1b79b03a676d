"""What a method sees of the device's time."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.fitting.forms import FormConstants, base_us, shipped_forms
from research.fitting.observation import Observation, Observed, Wait, fit_observation
from tests.research.op_rows import A100, T4, V100, add_rows, convolution_rows, product_rows

NO_CONSTANTS = FormConstants({}, None, None, ())


def _seen(call: float, issue: float, sharpness: float, device_us: float) -> float:
    waits = Observed(*(np.array([v]) for v in (call, issue, sharpness)))
    return float(waits.read_us(np.array([device_us])).item())


def test_by_hand() -> None:
    assert _seen(3.0, 0.0, 2.0, 4.0) == pytest.approx(5.0)  # (3^2 + 4^2)^(1/2)
    assert _seen(3.0, 1.0, 2.0, 3.0) == pytest.approx(5.0)  # (3^2 + (1 + 3)^2)^(1/2)
    assert _seen(0.0, 0.0, 1.0, 7.0) == pytest.approx(7.0)  # the device by itself


@given(st.floats(0.1, 100), st.floats(0, 1), st.floats(1, 8), st.floats(0.1, 1e5), st.floats(1.01, 10))
def test_never_shorter_than_host_or_device_and_grows_with_both(
    call: float, share: float, sharpness: float, device_us: float, factor: float
) -> None:
    seen = _seen(call, call * share, sharpness, device_us)
    assert seen >= max(call, device_us) * (1 - 1e-9)
    assert _seen(call, call * share, sharpness, device_us * factor) >= seen * (1 - 1e-12)


def test_a_gpu_waits_as_its_smallest_rows_say_and_an_unseen_one_as_the_typical() -> None:
    slow = product_rows((T4,)).assign(latency_us=lambda r: 3 * r["latency_us"])
    rows = pd.concat([product_rows((A100, V100)), slow], ignore_index=True)
    result = fit_observation(rows, NO_CONSTANTS)
    assert result.shares["toys", T4, "linear"] == pytest.approx(3.0)
    assert result.shares["toys", A100, "linear"] == pytest.approx(1.0)
    unseen = result.of(product_rows(("Tesla P4",)))
    assert np.unique(unseen.call_us).tolist() == [result.waits["toys", "linear"].call_us]
    assert result.of(slow).call_us[0] == pytest.approx(3 * float(unseen.call_us[0]))


def test_an_unknown_table_waits_like_its_source() -> None:
    """But not like one whose wait grew from call to call."""
    waits = Observation({("toys", "mul"): Wait(10.0, 0.5, 8.0), ("toys", "div"): Wait(30.0, 0.5, 8.0),
                         ("toys", "conv"): Wait(500.0, 1.0, 1.0, 0.1)}, {})  # fmt: skip
    result = waits.of(add_rows())
    assert np.allclose(result.call_us, 20.0)
    assert np.allclose(result.issue_us, 10.0)


def test_a_wait_that_grew_from_call_to_call_is_reported_by_the_calls_before() -> None:
    """Convolutions of some tens of us, behind a host that takes twice the typical one's time."""
    constants = shipped_forms()
    assert constants.convolution is not None
    rows = convolution_rows(3, device=V100, calls_before=[0.0, 1000.0, 4000.0], moved_bytes=100.0)
    first, growth = constants.convolution.call_us, constants.convolution.growth_us
    rows["latency_us"] = base_us(rows, constants) + 2.0 * (first + growth * rows["calls_before"])
    result = fit_observation(rows, constants)
    assert result.shares["toys", V100, "conv"] == pytest.approx(2.0)
    seen = result.of(rows).read_us(base_us(rows, constants))
    assert seen.tolist() == pytest.approx(rows["latency_us"].tolist())
    unseen = result.of(rows.assign(device="Tesla P4", calls_before=[np.nan, 0.0, 1000.0]))
    assert unseen.issue_us.tolist() == pytest.approx([first, first, first + 1000.0 * growth])
