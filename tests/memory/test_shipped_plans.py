"""Every shipped plan fits the hardware that its source states."""

import pytest

from gnnperf.generate import rank_tensors, read_plan
from gnnperf.hardware import conf_dir, load_device, read_yaml
from gnnperf.memory import most_reserved_bytes, planned_peak

STATED = {  # plan -> device of its source
    "dlrm_benchmark": "v100_sxm2_32gb", "dlrm_criteo": "a100_sxm_80gb", "dlrm_criteo_multi_hot": "a100_sxm_80gb",
    "gpt2_345m": "v100_sxm2_32gb", "gpt_405b": "h100_sxm", "llama2_13b_fsdp": "a100_sxm_80gb",
    "llama2_70b_fsdp": "a100_sxm_80gb", "llama3_70b_fsdp": "a100_sxm_80gb", "megatron_18b": "a100_sxm_80gb",
    "megatron_39b": "a100_sxm_80gb", "mixtral_8x7b": "h100_sxm", "resnet18": "v100_sxm2_16gb",
    "resnet50": "v100_sxm2_16gb",
}  # fmt: skip


def test_every_shipped_plan_has_stated_hardware() -> None:
    assert {file.stem for file in conf_dir("plan").glob("*.yaml")} == STATED.keys()


@pytest.mark.parametrize(("name", "device"), STATED.items())
def test_shipped_plan_fits_its_stated_hardware(name: str, device: str) -> None:
    raw = read_yaml(conf_dir("plan") / f"{name}.yaml")
    plan = read_plan(raw, name)
    assert raw["source"] and plan.name == name
    ranks = rank_tensors(plan)
    capacity = load_device(device).memory_bytes
    assert max(planned_peak(rank).peak_bytes for rank in ranks) < capacity
    assert max(map(most_reserved_bytes, ranks)) < capacity
