"""Constants of memory-bound kernels: the shipped file, the way to YAML and back, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.constants_file import read_constants, write_constants
from gnnperf.analytic.memory_bound.constants import MemoryConstants, MemorySystem, default_memory_constants
from gnnperf.analytic.memory_bound.streams import stream_share
from gnnperf.core.errors import InputError


def test_shipped_constants_are_plausible_and_say_where_they_come_from() -> None:
    constants = default_memory_constants()
    assert 0.5 < constants.stream_share < 1.0 and constants.cache_speedup > 1.0
    assert constants.provenance


def test_there_and_back(tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", CONSTANTS, 6)
    assert read_constants(tmp_path / "c.yaml", MemoryConstants) == CONSTANTS
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]  # nothing half-written next to it


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("colour", 1, "missing or unknown: colour"),
        ("stream_share", 0, "stream_share"),
        ("cache_share", "all", "cache_share"),
        ("rows", {"layer_norm": {}}, "missing or unknown"),
        ("systems", {"p4": {"bus_bits": 256}}, "missing or unknown"),
        ("rows_of", {"volta": {"layer_norm": {}}}, "rows_of.volta"),
        ("gaps", {"add": {"call_us": -1.0, "issue_share": 0.5}}, "gaps.add.call_us"),
    ],
)
def test_bad_constants_are_named(key: str, value: object, message: str, tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", CONSTANTS, 6)
    raw = yaml.safe_load((tmp_path / "c.yaml").read_text())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**raw, key: value}))
    with pytest.raises(InputError, match=message):
        read_constants(tmp_path / "c.yaml", MemoryConstants)


def test_a_device_has_the_share_of_the_memory_that_is_nearest() -> None:
    systems = {"hbm": MemorySystem(4096, 2e9, 0.9), "gddr": MemorySystem(256, 8e9, 0.7)}
    constants = replace(CONSTANTS, systems=systems)
    wide = replace(DEVICE, memory_bus_bits=5120, memory_pin_bits_per_s=3e9)
    assert stream_share(wide, constants) == 0.9
    assert stream_share(replace(wide, memory_bus_bits=192, memory_pin_bits_per_s=12e9), constants) == 0.7
    assert stream_share(replace(wide, memory_bus_bits=None), constants) == CONSTANTS.stream_share
    assert stream_share(wide, CONSTANTS) == CONSTANTS.stream_share  # nothing was measured


def test_a_generation_that_was_measured_has_row_kernels_of_its_own(tmp_path: Path) -> None:
    own = {name: replace(kernel, rereads=2.0) for name, kernel in CONSTANTS.rows.items()}
    constants = replace(CONSTANTS, rows_of={"volta": own})
    assert constants.row_kernel("layer_norm", "volta") == own["layer_norm"]
    assert constants.row_kernel("layer_norm", "ada") == constants.row_kernel("layer_norm", None)
    assert constants.row_kernel("layer_norm", None) == CONSTANTS.rows["layer_norm"]
    write_constants(tmp_path / "c.yaml", constants, 6)
    assert read_constants(tmp_path / "c.yaml", MemoryConstants) == constants
