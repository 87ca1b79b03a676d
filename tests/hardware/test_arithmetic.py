"""Every shipped number that follows from others does: a slipped digit or a sparse rate for a dense one is found."""

import json
import math
from pathlib import Path

import pytest
import yaml

from gnnperf.hardware import DeviceSpec, device_names, load_device, match_device

RELATIVE = 0.03  # data sheets round rates, clocks and bandwidths by up to 3 %
ROUNDED = {"float64": 0.05, "float64_matrix": 0.05}  # a data sheet's "1 TFLOP/s" where the units were cut
HALF_STEPS = {"float4_matrix"}  # Blackwell Ultra: half as fast again
DEVICES = {name: load_device(name) for name in device_names()}
GPUS = [d for d in DEVICES.values() if d.kind == "gpu"]
RATES = [(d, key) for d in GPUS for key in d.flops_per_s if key != "float32"]


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_float32_is_lanes_times_clock(device: DeviceSpec) -> None:
    """A multiply-add is two operations."""
    assert device.lanes_per_sm is not None
    expected = device.num_sms * device.lanes_per_sm * 2 * device.clock_hz
    assert device.flops_per_s["float32"] == pytest.approx(expected, rel=RELATIVE)


@pytest.mark.parametrize("device", GPUS, ids=lambda d: d.name)
def test_bandwidth_is_bus_times_pin_rate(device: DeviceSpec) -> None:
    assert device.memory_bus_bits is not None and device.memory_pin_bits_per_s is not None
    expected = device.memory_bus_bits * device.memory_pin_bits_per_s / 8
    assert device.memory_bandwidth_bytes_per_s == pytest.approx(expected, rel=RELATIVE)


@pytest.mark.parametrize(("device", "key"), RATES, ids=[f"{d.name}-{key}" for d, key in RATES])
def test_operations_per_sm_and_clock_are_a_power_of_two(device: DeviceSpec, key: str) -> None:
    """Units come in powers of two, whatever the dtype; matrix units may have a boost clock of their own."""
    clocks = {device.clock_hz, *([device.matrix_clock_hz] if device.matrix_clock_hz and "_matrix" in key else [])}
    rates = [device.flops_per_s[key] / device.num_sms / clock for clock in clocks]
    rates += [rate / 1.5 for rate in rates if key in HALF_STEPS]
    assert min(abs(rate / 2 ** round(math.log2(rate)) - 1) for rate in rates) <= ROUNDED.get(key, RELATIVE), rates


def test_tile_units_of_a_cpu() -> None:
    """AMX multiplies 16 x 64 by 64 x 16 int8 (32 bfloat16) in 16 clocks: Intel's optimization manual."""
    xeon = DEVICES["xeon_platinum_8480"]
    per_core = {key: xeon.flops_per_s[key] / xeon.num_sms / xeon.clock_hz for key in ("int8_matrix", "bfloat16_matrix")}
    assert per_core["int8_matrix"] == pytest.approx(2 * 16 * 64 * 16 / 16, rel=1e-3)
    assert per_core["bfloat16_matrix"] == pytest.approx(2 * 16 * 32 * 16 / 16, rel=1e-3)


@pytest.mark.parametrize("device", GPUS, ids=lambda d: d.name)
def test_half_the_bytes_are_at_least_as_fast_and_matrix_units_no_slower(device: DeviceSpec) -> None:
    rates = device.flops_per_s
    for key in rates:
        assert key.endswith("_matrix") or rates.get(f"{key}_matrix", math.inf) >= rates[key]
    assert rates.get("float16_matrix", math.inf) >= rates.get("float32_matrix", rates["float32"])
    assert rates.get("float8_matrix", math.inf) >= rates.get("float16_matrix", 0.0)
    assert device.architecture
    assert device.base_clock_hz is None or device.base_clock_hz < device.clock_hz


def test_sister_gpus_share_a_generation() -> None:
    generations = {name: DEVICES[name].architecture for name in ("a100_pcie_40gb", "a100_sxm_80gb", "a10g")}
    assert set(generations.values()) == {"ampere"}
    assert DEVICES["h100_sxm"].architecture == DEVICES["h200"].architecture == DEVICES["gh200"].architecture
    assert len({DEVICES[n].architecture for n in ("p100", "v100_pcie_32gb", "t4", "a10g", "l4", "h200", "b200")}) == 7


# --- against the specifications that public tables come with ---------------------------------------------------------

NEUSIGHT = "sitar-lab+NeuSight/scripts/asplos/data/device_configs"
NEUSIGHT_TOLERANCE = 0.05  # it takes the P4's and P100's clocks from boards that report more than the data sheet
AICONFIGURATOR = "ai-dynamo+aiconfigurator/aic-core/src/aiconfigurator_core/systems"
SYSTEMS = ("a100_pcie", "a100_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300", "h100_pcie", "h100_sxm", "h200_sxm",
           "l4", "l40s", "rtx_pro_6000_server")  # fmt: skip
SYSTEM_RATES = {"bfloat16_tc_flops": "bfloat16_matrix", "int8_tc_flops": "int8_matrix", "fp8_tc_flops": "float8_matrix",
                "fp4_tc_flops": "float4_matrix"}  # fmt: skip
# Its RTX PRO 6000 has the workstation board's memory; its B300's float4 is rounded up.
DIFFERENT = {("rtx_pro_6000_server", "mem_bw"), ("b300_sxm", "fp4_tc_flops")}


@pytest.mark.mirror
def test_neusights_devices_are_known_and_agree(mirror: Path) -> None:
    result = [json.loads(path.read_text()) for path in sorted((mirror / NEUSIGHT).glob("*.json"))
             if not path.stem.endswith("_TP")]  # two GPUs as one  # fmt: skip
    assert len(result) == 12
    for row in result:
        device = match_device(row["Device"])
        assert device is not None, row["Device"]
        flops = (row.get("SingleFLOPsVEC") or row["SingleFLOPs"]) * 1e9
        assert device.flops_per_s["float32"] == pytest.approx(flops, rel=NEUSIGHT_TOLERANCE), row
        assert device.memory_bandwidth_bytes_per_s == pytest.approx(row["Mem_Bw"] * 1e9, rel=RELATIVE), row


@pytest.mark.mirror
@pytest.mark.parametrize("system", SYSTEMS)
def test_aiconfigurators_systems_are_known_and_agree(system: str, mirror: Path) -> None:
    gpu = yaml.safe_load((mirror / AICONFIGURATOR / f"{system}.yaml").read_text())["gpu"]
    device = match_device(system)
    assert device is not None
    ours = {**{theirs: device.flops_per_s.get(key) for theirs, key in SYSTEM_RATES.items()},
            "mem_bw": device.memory_bandwidth_bytes_per_s, "power": device.power_limit_w}  # fmt: skip
    checked = [key for key in ours if key in gpu and (system, key) not in DIFFERENT]
    assert len(checked) >= 3
    for key in checked:
        assert ours[key] == pytest.approx(gpu[key], rel=RELATIVE), key
