"""The catalog loads, is consistent with itself, states what is wrong with a file; YAML of users is plain values."""

import csv
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.hardware import (
    Measured,
    cluster_names,
    default_cluster,
    device_names,
    load_cluster,
    load_device,
    match_device,
)
from gnnperf.hardware.sections import closest
from gnnperf.hardware.strict_yaml import MAX_DEPTH, parse_yaml, read_yaml, yaml_text
from gnnperf.hardware.yaml_spec import device_from

GPUS = (
    "p4", "p100", "v100_pcie_32gb", "v100_sxm2_16gb", "v100_sxm2_32gb", "v100_dgxs_32gb", "t4", "rtx_2080_ti",
    "rtx_3060_ti", "gtx_1650", "a100_pcie_40gb", "a100_pcie_80gb", "a100_sxm_40gb", "a100_sxm_80gb", "a10g", "l4",
    "l40s", "h100_pcie", "h100_sxm", "h800", "h200", "gh200", "b200", "b300", "gb200", "gb300", "rtx_pro_6000",
    "rtx_pro_6000_server", "mi100", "mi210", "mi250", "mi300x", "mi325x", "mi355x", "a10", "a30", "a40",
    "a800_sxm_80gb", "h20", "rtx_a6000", "rtx_6000_ada", "rtx_3080", "rtx_3090", "rtx_4080", "rtx_4090", "rtx_5090",
    "gpu_generic",
)  # fmt: skip
CPUS = ("cpu_generic", "epyc_7742", "epyc_9654", "grace", "xeon_e5_2698_v4", "xeon_platinum_8480")
CLUSTERS = ("dgx1_p100", "dgx1_v100", "dgx_a100", "hgx8", "hgx_h100", "hgx_h800", "hgx_b200", "hgx_b300", "gb200_nvl72",
            "gb300_nvl72", "gh200_nodes", "mi300x_8", "mi355x_8", "hgx_a800", "single", "loopback_cpu")  # fmt: skip

MINE: dict[str, object] = {
    "name": "mine", "kind": "gpu", "flops_per_s": {"float32": 1e12, "float16_matrix": "8e12"},
    "memory_bandwidth_bytes_per_s": 1e11, "l2_bytes": 1048576, "num_sms": 4, "clock_hz": 1e9, "memory_bytes": 1e9,
}  # fmt: skip


def write(path: Path, content: Mapping[str, object]) -> Path:
    path.write_text(yaml_text(content))
    return path


def test_what_was_promised_is_there() -> None:
    assert {*GPUS, *CPUS} <= set(device_names())
    assert set(CLUSTERS) <= set(cluster_names())


@pytest.mark.parametrize("name", device_names())
def test_device_is_named_after_its_file_and_cites_a_source(name: str) -> None:
    device = load_device(name)
    assert device.name == name and device.source and device.aliases
    assert device.kind == ("cpu" if name in CPUS else "gpu")


@pytest.mark.parametrize("name", cluster_names())
def test_cluster_is_named_after_its_file_and_inner_links_are_no_slower(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert cluster.intra.bandwidth_bytes_per_s >= cluster.inter.bandwidth_bytes_per_s
    assert cluster.intra.source and cluster.inter.source and cluster.host_link.source


def test_known_numbers() -> None:
    v100, h100 = load_device("v100_sxm2_32gb"), load_device("h100_sxm")
    assert (v100.flops_per_s["float32"], v100.memory_bandwidth_bytes_per_s, v100.num_sms) == (15.7e12, 900e9, 80)
    assert (h100.flops_per_s["bfloat16_matrix"], h100.memory_bandwidth_bytes_per_s) == (989.4e12, 3350e9)
    assert load_cluster("dgx_a100").intra.bandwidth_bytes_per_s == 300e9


def test_no_alias_names_two_devices() -> None:
    aliases = [a.lower() for n in device_names() for a in load_device(n).aliases]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize(
    ("trace_name", "name"),
    [
        ("Tesla V100-SXM2-32GB", "v100_sxm2_32gb"), ("tesla v100-sxm2-16gb", "v100_sxm2_16gb"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm_80gb"), ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("AMD Instinct MI300X", "mi300x"), ("NVIDIA A100 80GB PCIe", "a100_pcie_80gb"), ("h200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA B300 SXM6 AC", "b300"), ("NVIDIAA100-SXM4-80GB", "a100_sxm_80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"), ("NVIDIA RTX A6000", "rtx_a6000"), ("NVIDIA A40", "a40"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_server"), ("AMD Instinct MI250", "mi250"),
    ],
)  # fmt: skip
def test_match_device(trace_name: str, name: str) -> None:
    result = match_device(trace_name)
    assert result is not None and result.name == name


@pytest.mark.parametrize("trace_name", ["", "NVIDIA", "A100", "gpu", "ARTEMIS"])
def test_no_match_is_none_not_a_guess(trace_name: str) -> None:
    assert match_device(trace_name) is None


def test_unknown_name_states_the_closest_and_how_to_add_one() -> None:
    with pytest.raises(InputError, match="v100_sxm2_32gb") as caught:
        load_device("v100_sxm_32gb")
    assert "did you mean" in str(caught.value) and "v100_sxm_32gb.yaml" in str(caught.value)
    with pytest.raises(InputError, match=r"no cluster named 'dgx'; did you mean dgx.*dgx_a100"):
        load_cluster("dgx")


@pytest.mark.parametrize(
    ("requested", "named"),
    [("a100", "a100_sxm_80gb"), ("H100-SXM5", "h100_sxm"), ("mi300", "mi300x"), ("tpu_v5e", None),
     ("v1000", "v100_sxm2_32gb")],
)  # fmt: skip
def test_the_closest_names_are_those_a_user_means(requested: str, named: str | None) -> None:
    assert (named in closest(requested, device_names())) if named else (closest(requested, device_names()) == [])


@pytest.mark.mirror
def test_every_device_that_public_traces_name_is_known(mirror: Path) -> None:
    with (mirror / "catalog.csv").open(newline="") as stream:
        named = {row["gpu"] for row in csv.DictReader(stream)} - {"", "gpu", "ARTEMIS"}  # ARTEMIS: an accelerator
    assert len(named) > 15
    assert {name for name in named if match_device(name) is None} == set()


def test_a_path_to_ones_own_device_and_numbers_without_a_signed_exponent(tmp_path: Path) -> None:
    device = load_device(write(tmp_path / "mine.yaml", MINE))
    assert device.flops_per_s == {"float32": 1e12, "float16_matrix": 8e12}
    assert device.power_limit_w is None


def test_a_cluster_with_another_device_in_it() -> None:
    mixed = load_cluster("dgx_a100", "h100_sxm")
    assert mixed.device.name == "h100_sxm" and mixed.intra == load_cluster("dgx_a100").intra
    assert load_cluster("single", load_device("t4")).device.name == "t4"


def test_default_cluster(tmp_path: Path) -> None:
    assert default_cluster(load_device("v100_sxm2_16gb")).name == "dgx1_v100"
    assert default_cluster(load_device("v100_sxm2_16gb")).device.name == "v100_sxm2_16gb"
    assert default_cluster(load_device("cpu_generic")).name == "loopback_cpu"
    mine = load_device(write(tmp_path / "mine.yaml", MINE))
    assert (default_cluster(mine).name, default_cluster(mine).device) == ("single", mine)
    for name in device_names():
        assert default_cluster(load_device(name)).name != "single"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "green"}, "unknown key 'colour'"),
        ({"num_sms": None}, r"num_sms: bad value None\. Allowed: a whole number"),
        ({"num_sms": "many"}, r"bad value 'many'\. Allowed: a whole number"),
        ({"num_sms": 1.5}, "num_sms: bad value 1.5"),
        ({"num_sms": True}, "num_sms: bad value True"),
        ({"clock_hz": -1}, r"clock_hz: bad value -1\. Allowed: a number above 0"),
        ({"clock_hz": float("nan")}, "the number '.nan'"),
        ({"memory_bytes": float("inf")}, "the number '.inf'"),
        ({"memory_bandwidth_bytes_per_s": 1e-300}, "memory_bandwidth_bytes_per_s.*1e-12 to 1e"),
        ({"memory_bandwidth_bytes_per_s": 1e308}, "memory_bandwidth_bytes_per_s.*1e-12 to 1e"),
        ({"sustained_flops_share": 1.5}, r"sustained_flops_share: bad value 1.5\. Allowed: a number up to 1"),
        ({"launch_floor_us": -0.1}, r"launch_floor_us: bad value -0.1\. Allowed: a number from 0 up"),
        ({"kind": "tpu"}, "kind: bad value 'tpu'.*gpu, cpu"),
        ({"flops_per_s": {"float64": 1e12}}, "float32 is required"),
        ({"flops_per_s": {"float32": 1e12, "fp16": 1e12}}, "unknown key 'fp16'"),
        ({"flops_per_s": {"float32": -1}}, r"float32: bad value -1\."),
        ({"aliases": "one"}, r"aliases: bad value 'one'\. Allowed: a list"),
        ({"name": 3}, r"name: bad value 3\. Allowed: text"),
    ],
)
def test_bad_values_are_named(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_device(write(tmp_path / "bad.yaml", {**MINE, **change}))


@pytest.mark.parametrize("text", ["a: [", "just text", "- a\n- b", "", "!!python/object/apply:os.system ['true']"])
def test_what_is_no_specification_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=r"bad\.yaml"):
        load_device(tmp_path / "bad.yaml")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        load_cluster(tmp_path / "bad.yaml")


def test_a_missing_key_a_missing_file_and_a_file_that_is_not_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="clock_hz is required"):
        load_device(write(tmp_path / "bad.yaml", {k: v for k, v in MINE.items() if k != "clock_hz"}))
    with pytest.raises(InputError, match=r"absent\.yaml"):
        load_device(tmp_path / "absent.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match=r"binary\.yaml"):
        load_device(tmp_path / "binary.yaml")


def test_a_cluster_link_is_checked(tmp_path: Path) -> None:
    link = {"name": "wire", "bandwidth_bytes_per_s": 1e9, "latency_us": 1.0}
    good = {"name": "mine", "device": "t4", "intra": link, "inter": link, "host_link": link}
    assert load_cluster(write(tmp_path / "good.yaml", good)).ranks_per_node == 8
    with pytest.raises(InputError, match=r"intra\.latency_us: bad value -1\."):
        load_cluster(write(tmp_path / "bad.yaml", {**good, "intra": {**link, "latency_us": -1}}))
    with pytest.raises(InputError, match="no link named 'fast'"):
        load_cluster(write(tmp_path / "bad.yaml", {**good, "inter": "fast"}))
    with pytest.raises(InputError, match="no hardware named 't5'"):
        load_cluster(write(tmp_path / "bad.yaml", {**good, "device": "t5"}))


def test_measured_quantities_and_provenance_are_read():
    calibrated = {"measured": {"launch_floor_us": {"value": 2, "low": 1.5, "high": 2.5}},
                  "host": {"host_op_us": {"value": 1.0, "low": 0.9, "high": 1.1}},
                  "provenance": {"versions.torch": "2.13.0"}}  # fmt: skip
    device = device_from({**MINE, **calibrated}, "mine.yaml")
    assert device.measured == {"launch_floor_us": Measured(2.0, 1.5, 2.5)}
    assert device.host["host_op_us"].high == 1.1
    assert device.provenance == {"versions.torch": "2.13.0"}
    assert device_from(MINE, "mine.yaml").measured == {}


@pytest.mark.parametrize(
    ("result", "statement"),
    [
        (3.0, "bad value 3.0"),
        ({"launch_floor_us": 3.0}, "bad value 3.0"),
        ({"launch_floor_us": {"value": 3.0, "low": 1.0, "high": 2.0}}, "launch_floor_us: bad value 3.0.*1.0 to 2.0"),
        ({"launch_floor_us": {"value": "much", "low": 1.0, "high": 2.0}}, "bad value 'much'"),
    ],
)
def test_what_is_no_interval_is_refused(result: object, statement: str):
    with pytest.raises(InputError, match=statement):
        device_from({**MINE, "measured": result}, "mine.yaml")


LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(-1e30, 1e30)
    | st.text("ab: #-'\"\n", max_size=9)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "an anchor or alias in line 1"),
        ("a: 1\nb: &x 2\n", "an anchor or alias in line 2"),
        ("a: {<<: {b: 1}}", "a value of type merge"),
        ("a: !!python/object/apply:os.system [id]", "the tag"),
        ("a: ! b", "the tag"),
        ("a: !!binary aGk=", "the tag"),
        ("a: 2020-01-01", "a value of type timestamp"),
        ("a: 1\na: 2", "the key 'a' twice in line 2"),
        ("defaults: [x]", "the key 'defaults'"),
        ("a: {_target_: os.system}", "the key '_target_'"),
        ("name: x_${oc.env:HOME}", "the interpolation"),
        ("${oc.env:HOME}: 1", "the interpolation"),
        ("? [a]\n: 1", "a key that is a mapping or a list"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("a: .inf", "the number"),
        ("a: 1" + "0" * 60, "a whole number of 61 characters"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper"),
        ("a: " + "[" * 100_000, "nested deeper|is not YAML"),
        ("a: [" + "1," * 100_001 + "]", "more than 100,000 values"),
        ("a: '\x1b[31m'", "control character"),
        ("a: [1", "is not YAML"),
    ],
)  # fmt: skip
def test_more_than_plain_values_is_refused_at_once(text: str, message: str) -> None:
    begin = time.process_time()
    with pytest.raises(InputError, match=message):
        parse_yaml(text, "mine.yaml")
    assert time.process_time() - begin < 2.0


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a" * (1 << 20) + b": 1", b"- 1", b"1: 2", b""])
def test_a_file_that_is_no_mapping_of_text_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.yaml"):
        read_yaml(path)


def test_a_pipe_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.yaml")
    with pytest.raises(InputError, match="is not a file"):
        read_yaml(tmp_path / "mine.yaml")


@given(st.dictionaries(st.text("abc", max_size=3), VALUES, max_size=4))
def test_what_is_written_is_read_back(content: dict[str, object]) -> None:
    text = yaml_text(content)
    assert parse_yaml(text, "x") == yaml.safe_load(text) == content


def test_a_value_that_stands_twice_is_written_without_an_anchor() -> None:
    link = {"name": "wire"}
    assert parse_yaml(yaml_text({"a": link, "b": link}), "x") == {"a": link, "b": link}
