"""Constants of convolutions: the shipped file, the way to YAML and back, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from round_device import DEVICE as ROUND

from gnnperf.analytic.constants_file import read_constants, write_constants
from gnnperf.analytic.convolution.model import ConvolutionConstants, default_convolution_constants
from gnnperf.core.errors import InputError

DEVICE = replace(ROUND, memory_bandwidth_bytes_per_s=1e11)  # transforms count
TRUE = ConvolutionConstants(0.8, 6.0, 1.3, 0.9, 40.0, 0.2, "made up")


def test_shipped_constants_are_plausible_and_say_where_they_come_from() -> None:
    constants = default_convolution_constants()
    assert 0.5 < constants.fused_factor < 1.5 and 0.5 < constants.unfused_factor < 1.5
    assert 0.5 < constants.transform_factor < 2.0  # transforms stream
    assert constants.provenance


def test_there_and_back(tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", TRUE, 6)
    assert read_constants(tmp_path / "c.yaml", ConvolutionConstants) == TRUE
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]  # nothing half-written next to it


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"colour": 1}, "missing or unknown"),
        ({"fused_factor": 0}, "fused_factor"),
        ({"growth_us": "much"}, "growth_us"),
        ({"call_us": True}, "call_us"),
        ({"call_us": float("nan")}, "the number .\\.nan"),
    ],
)
def test_bad_constants_are_named(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", TRUE, 6)
    raw = yaml.safe_load((tmp_path / "c.yaml").read_text())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**raw, **changed}))
    with pytest.raises(InputError, match=message):
        read_constants(tmp_path / "c.yaml", ConvolutionConstants)
