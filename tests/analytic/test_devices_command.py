"""`gnnperf devices`: what the catalog's devices are answered by."""

from gnnperf.analytic.device_evidence import DeviceEvidence, Evidence, Standing, catalog_evidence, shipped_evidence
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.hardware import conf_dir, device_names, load_device, read_yaml
from tests.command import Command


def _evidence(device: str, fitted: int) -> Evidence:
    return Evidence(device, "owner/name", "MIT", "bmm", "float32", 1000, fitted, "gemm.yaml")


def _catalog(*result: Evidence) -> dict[str, DeviceEvidence]:
    return {one.device.name: one for one in catalog_evidence(result)}


def test_evidence_decides_the_standing() -> None:
    result = _catalog(_evidence("h100_sxm", 256), _evidence("t4", 255))
    assert result["h100_sxm"].standing == Standing.MEASURED
    assert result["t4"].standing == Standing.FEW_SHOT
    assert result["v100_pcie_32gb"].standing == Standing.ZERO_SHOT


def test_an_unmeasured_gpu_names_boards_of_its_chip_before_its_generation() -> None:
    result = _catalog(_evidence("h100_sxm", 300), _evidence("h100_pcie", 300))
    assert result["h200"].next_to == ("h100_sxm",)
    assert result["h200"].same_chip
    only_other = _catalog(_evidence("l40s", 300))
    assert only_other["l4"].next_to == ("l40s",)
    assert not only_other["l4"].same_chip
    assert only_other["b200"].next_to == ()


def test_devices_without_closed_forms_say_so() -> None:
    assert "roofline" in _catalog()["mi210"].statement
    assert "recordings" in _catalog()["mi300x"].statement
    assert "rates per core" in _catalog()["epyc_9654"].statement


def test_rows_are_counted_by_source_and_dtype() -> None:
    assert (
        _catalog(_evidence("p4", 1200), _evidence("p4", 3))["p4"].statement == "owner/name, float32: bmm 1,200, bmm 3"
    )


def test_shipped_evidence_names_the_devices_of_the_constants() -> None:
    sentences = str(read_yaml(conf_dir("analytic") / "gemm.yaml")["provenance"])
    for one in (one for one in shipped_evidence() if one.constants == "gemm.yaml"):
        assert any(name in sentences for name in load_device(one.device).aliases), one.device
    fitted = {one.device for one in shipped_evidence() if one.constants == "memory_bound.yaml"}
    assert fitted == set(default_memory_constants().systems)
    assert all(one.fitted <= one.rows for one in shipped_evidence())


def test_the_table_has_every_device(command: Command) -> None:
    printed = command.shown("devices")
    assert all(name in printed for name in device_names())
    assert "measured" in printed
    assert "zero-shot" in printed


def test_json_holds_numbers_and_evidence(command: Command) -> None:
    result = {one["device"]: one for one in command.document("devices")}
    assert set(result) == set(device_names())
    assert result["h100_sxm"]["memory_bandwidth_bytes_per_s"] == 3.35e12
    assert result["h100_sxm"]["evidence"][0]["source"] == "ai-dynamo/aiconfigurator"
    assert result["l4"]["evidence"] == []
