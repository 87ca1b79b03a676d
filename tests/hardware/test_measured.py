"""Calibrated quantities in a device file."""

from __future__ import annotations

import pytest

from gnnperf.core.errors import InputError
from gnnperf.hardware import Measured
from gnnperf.hardware.yaml_spec import device_from

DEVICE: dict[str, object] = {
    "name": "mine", "kind": "cpu", "flops_per_s": {"float32": 1e11}, "memory_bandwidth_bytes_per_s": 1e10,
    "l2_bytes": 1e6, "num_sms": 1, "clock_hz": 1e9, "memory_bytes": 1e9,
}  # fmt: skip


def test_measured_quantities_and_provenance_are_read():
    device = device_from(
        {
            **DEVICE,
            "measured": {"launch_floor_us": {"value": 2, "low": 1.5, "high": 2.5}},
            "host": {"host_op_us": {"value": 1.0, "low": 0.9, "high": 1.1}},
            "provenance": {"versions.torch": "2.13.0"},
        },
        "mine.yaml",
    )
    assert device.measured == {"launch_floor_us": Measured(2.0, 1.5, 2.5)}
    assert device.host["host_op_us"].high == 1.1
    assert device.provenance == {"versions.torch": "2.13.0"}


def test_a_device_that_was_not_calibrated_has_none():
    assert device_from(DEVICE, "mine.yaml").measured == {}


@pytest.mark.parametrize(
    ("result", "statement"),
    [
        (3.0, "is not a table of quantities"),
        ({"launch_floor_us": 3.0}, "is no measured quantity"),
        ({"launch_floor_us": {"value": 3.0, "low": 1.0, "high": 2.0}}, "lies outside 1.0 to 2.0"),
        ({"launch_floor_us": {"value": "much", "low": 1.0, "high": 2.0}}, "is not a number"),
    ],
)
def test_what_is_no_interval_is_refused(result: object, statement: str):
    with pytest.raises(InputError, match=statement):
        device_from({**DEVICE, "measured": result}, "mine.yaml")
