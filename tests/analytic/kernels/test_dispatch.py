"""Which form answers which call, and what must hold on every GPU of the catalog."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_device import DEVICE

from gnnperf.analytic.gemm.model import gemm_us, products
from gnnperf.analytic.kernels.call import Bound, KernelCall
from gnnperf.analytic.kernels.dispatch import has_forms, kernel_times, roofline_us
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.roofline import default_cdna_constants
from gnnperf.hardware import DeviceSpec, Measured, device_names, load_device
from tests.analytic.kernels.calls import call, of_every_family, without_work

GPUS = tuple(device for device in map(load_device, device_names()) if device.kind == "gpu")
POWER = 4.0
SLACK = 1 + 1e-9
SIZES = {"rows": st.integers(1, 3000), "columns": st.integers(1, 2000)}
GPU, DTYPE = st.sampled_from(GPUS), st.sampled_from(["float32", "bfloat16"])


def times_us(calls: list[KernelCall], device: DeviceSpec) -> np.ndarray:
    return kernel_times(calls, device, POWER).latency_us


def worse(before: np.ndarray, after: np.ndarray, calls: list[KernelCall]) -> list[str]:
    """Ops whose time went up, beyond rounding."""
    return [c.op_name for c, b, a in zip(calls, before, after, strict=True) if a > b * SLACK]


@settings(deadline=None)
@given(more=st.integers(1, 500), device=GPU, dtype=DTYPE, **SIZES)
def test_more_work_is_never_faster(rows: int, columns: int, more: int, device: DeviceSpec, dtype: str) -> None:
    few, many = (of_every_family(r, columns, dtype) for r in (rows, rows + more))
    # fewer results than SMs are added up in two passes, a matter of the result's size: sums keep their own test
    requested = [i for i, c in enumerate(few) if c.op_name != "aten::sum"]
    few_us, many_us = times_us(few, device)[requested], times_us(many, device)[requested]
    # of tiny convolutions, the choice among kernels is off by a millionth (1 and 2 images, 2 channels, rtx_4090)
    assert worse(many_us * (1 + 1e-5), few_us, [few[i] for i in requested]) == []


@settings(deadline=None)
@given(more=st.integers(1, 500), device=GPU, dtype=DTYPE, **SIZES)
def test_sums_of_more_elements_are_never_faster(
    rows: int, columns: int, more: int, device: DeviceSpec, dtype: str
) -> None:
    calls = [call("aten::sum", [[n, columns], []], dtype, ["", "[0]"]) for n in (rows, rows + more)]
    few, many = times_us(calls, device)
    assert many * SLACK >= few


@settings(deadline=None)
@given(factor=st.floats(1.0, 100.0), device=GPU, dtype=DTYPE, **SIZES)
def test_more_bandwidth_is_never_slower(rows: int, columns: int, factor: float, device: DeviceSpec, dtype: str) -> None:
    calls = of_every_family(rows, columns, dtype)
    better = replace(device, memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s * factor)
    assert worse(times_us(calls, device), times_us(calls, better), calls) == []


@pytest.mark.parametrize("device", GPUS, ids=lambda d: d.name)
def test_no_work_costs_the_floor_and_some_work_no_less(device: DeviceSpec) -> None:
    calls = of_every_family(5, 40, "float32")
    own = default_memory_constants().programs.get(device.architecture or "")  # programs of its generation were measured
    least_us = device.launch_floor_us if own is None else own.start_us
    idle_us, busy_us = times_us(list(map(without_work, calls)), device), times_us(calls, device)
    assert ((least_us <= idle_us * SLACK) & (idle_us <= busy_us * SLACK)).all()
    assert (idle_us <= device.launch_floor_us * SLACK).all()
    assert not np.isnan(busy_us).any()


def test_every_family_has_a_form_on_an_nvidia_gpu() -> None:
    calls = of_every_family(64, 256, "bfloat16")
    assert kernel_times(calls, load_device("a100_sxm_80gb"), POWER).by_form.all()


def test_products_of_experts_take_as_long_as_a_batch_of_them() -> None:
    grouped = call("aten::_grouped_mm", [[4096, 1024], [8, 1024, 2048], [8]], "bfloat16")
    batched = call("aten::bmm", [[8, 512, 1024], [8, 1024, 2048]], "bfloat16")
    sums = [call("aten::_grouped_mm", [[1024, n], [n, 2048], [8]], "bfloat16") for n in (4096, 4104)]  # 513 each
    us = times_us([grouped, batched, *sums], load_device("h100_sxm"))
    assert us[0] == us[1] > 2 * 4096 * 1024 * 2048 / 989e6
    assert us[3] == pytest.approx(us[2], rel=0.1)


def test_cpus_keep_the_roofline() -> None:
    device, calls = load_device("cpu_generic"), of_every_family(64, 256, "float32")
    result = kernel_times(calls, device, POWER)
    assert not result.by_form.any()
    assert result.latency_us.tolist() == roofline_us(calls, device, POWER).tolist()


def test_amd_gpus_have_a_roofline_per_kind_of_op() -> None:
    device, shares = load_device("mi300x"), default_cdna_constants().of("gemm")
    product = call("aten::mm", [[8192, 4096], [4096, 8192]], "float16")
    compute = product.flops / (device.flops_per_s["float16_matrix"] * shares.compute_share) * 1e6
    times = [kernel_times([replace(product, num_kernels=n)], device, POWER) for n in (1, 3)]
    assert times[0].by_form.all()
    one, three = (float(t.latency_us[0]) for t in times)
    assert compute + shares.start_us <= one < 1.2 * compute + shares.start_us
    assert three - one == pytest.approx(2 * shares.start_us)
    # a calibrated device is as fast as its measured copies say
    copy = call("aten::copy_", [[2**28], [2**28]], "float32")
    sustained = replace(device, measured={"x": Measured(1.0, 1.0, 1.0)}, memory_bandwidth_bytes_per_s=4e12)
    assert times_us([copy], sustained)[0] == pytest.approx(2**31 / 4e12 * 1e6, rel=0.01)


def test_convolutions_on_amd_gpus_turn_their_tensors_to_channels_last_and_back() -> None:
    device, shares = load_device("mi300x"), default_cdna_constants().of("conv")
    moved_bytes = 2 * (2 * 64 * 128 * 28 * 28 + 128 * 128 * 9)
    turned = KernelCall("aten::miopen_convolution", None, "bfloat16", "conv", 1.5e10, moved_bytes, num_kernels=5)
    computed = turned.flops / (device.flops_per_s["bfloat16_matrix"] * shares.compute_share)
    moved = turned.moved_bytes * (1 + 8 / 2) / (device.memory_bandwidth_bytes_per_s * shares.bandwidth_share)
    assert times_us([turned], device)[0] == pytest.approx(5 * shares.start_us + (computed + moved) * 1e6)


def test_patches_of_three_channels_fill_no_matrix_unit() -> None:
    """Recorded by AMD-AGI/TraceLens (MIT) on an H100, which no constant of convolutions saw: 1,198 us."""
    patches = [[128, 3, 224, 224], [768, 3, 16, 16], *[[]] * 6]
    values = ["", "", "[0, 0]", "[16, 16]", "[1, 1]", "1", "False", "False"]
    stem = replace(call("aten::cudnn_convolution", patches, "bfloat16", values=values), num_kernels=4)
    assert times_us([stem], load_device("h100_sxm"))[0] == pytest.approx(1198.0, rel=0.15)


def test_rows_of_an_odd_length_are_read_element_by_element() -> None:
    """Recorded by AMD-AGI/TraceLens (MIT) on an H100: 2.4 to 3.1 times as long as rows next to them."""
    h100 = load_device("h100_sxm")

    def slower(dtype: str, op: str, *dims: int) -> float:
        odd, even = ([[16, n, 64], [16, 64, n]] if op == "aten::bmm" else [[16, n, n]] for n in dims)
        odd_us, even_us = times_us([call(op, odd, dtype), call(op, even, dtype)], h100)
        return float(odd_us / even_us)

    assert 2.0 < slower("bfloat16", "aten::bmm", 5185, 5184) < 3.5
    assert 1.3 < slower("bfloat16", "aten::_softmax", 5185, 5184) < 2.5  # which also leave shared memory
    assert slower("float32", "aten::bmm", 5185, 5184) < 1.2
    assert slower("float32", "aten::_softmax", 5185, 5184) < 1.3


def test_a_calibrated_device_of_another_vendor_is_known_by_its_name() -> None:
    assert not has_forms(replace(DEVICE, name="mine", aliases=("AMD Instinct MI300X",)))
    assert has_forms(replace(DEVICE, name="mine", aliases=("NVIDIA H200",)))


def test_what_is_not_known_falls_back_to_the_roofline() -> None:
    known = call("aten::mm", [[64, 32], [32, 16]])
    for requested in (
        replace(known, input_dims=None),
        replace(known, input_dims="[[64,32]]"),
        replace(known, dtype="complex64"),
        replace(known, op_name="my::mm"),
        replace(known, family="unknown"),
    ):
        result = kernel_times([requested], load_device("t4"), POWER)
        assert not result.by_form[0]
        assert result.latency_us.tolist() == roofline_us([requested], load_device("t4"), POWER).tolist()


def test_nothing_known_is_nan_without_a_bound() -> None:
    result = kernel_times(
        [replace(call("aten::mm", [[4, 4], [4, 4]]), flops=np.nan, moved_bytes=np.nan)], DEVICE, POWER
    )
    assert np.isnan(result.latency_us[0]) and result.bound[0] is None and not result.by_form[0]


def test_each_kernel_after_the_first_adds_a_floor() -> None:
    one = call("aten::mul", [[1000, 1000], [1000, 1000]])
    isolated, four = times_us([one, replace(one, num_kernels=4)], DEVICE)
    assert four - isolated == pytest.approx(3 * DEVICE.launch_floor_us)


def test_bounds_by_hand() -> None:
    # 1e12 FLOP/s and 1e12 bytes/s sustained, a floor of 2 us: 1e6 of either is 1 us
    def of(flops: float, moved: float) -> KernelCall:
        return KernelCall("aten::mm", None, "float32", "gemm", flops, moved)

    result = kernel_times([of(3e6, 2.5e6), of(1e6, 3e6), of(1e6, 1.9e6), of(np.nan, 9e6)], DEVICE, POWER)
    assert result.bound.tolist() == [Bound.COMPUTE, Bound.MEMORY, Bound.LAUNCH, Bound.MEMORY]


def test_a_calibrated_device_sustains_what_was_measured() -> None:
    """Its rates are sustained ones, of which a form must not take a share again."""
    device = load_device("a100_sxm_80gb")
    large = call("aten::mm", [[4096, 4096], [4096, 4096]], "bfloat16")
    measured = replace(
        device, flops_per_s={**device.flops_per_s, "bfloat16_matrix": 250e12}, sustained_flops_share=1.0,
        sustained_bandwidth_share=1.0, memory_bandwidth_bytes_per_s=1.7e12, measured={"x": Measured(1.0, 1.0, 1.0)},
    )  # fmt: skip
    at_that_rate = large.flops / 250e12 * 1e6
    assert times_us([large], measured)[0] == pytest.approx(at_that_rate, rel=0.03)
    assert times_us([large], replace(measured, measured={}))[0] > 1.1 * at_that_rate


def test_tf32_speeds_up_float32_products_that_may_use_it() -> None:
    device, requested = load_device("a100_sxm_80gb"), call("aten::mm", [[4096, 4096], [4096, 4096]])
    plain, tf32 = times_us([requested, replace(requested, tf32=True)], device)
    assert plain > 4 * tf32
    assert tf32 == pytest.approx(gemm_us(device, "float32", products(4096, 4096, 4096), tf32=True)[0])


def test_lanes_stream_the_matrix_that_a_vector_is_multiplied_with() -> None:
    device = load_device("gtx_1650")  # 128 GB/s, of which its memory sustains what T4's does
    vector, matrix = times_us([call("aten::mm", [[m, 512], [512, 512]], "float16") for m in (1, 512)], device)
    assert vector == pytest.approx(2.0 + 2 * (512 + 512 * 512 + 512) / 128e3 / 0.7508) and matrix > vector


def test_kernels_of_programs_on_a_measured_generation_find_their_operands_in_the_cache() -> None:
    h200 = load_device("h200")
    small, large = (call("aten::mul", [[rows, 1000], [rows, 1000]]) for rows in (1000, 100_000))
    own = default_memory_constants().programs["hopper"]
    near, far = own.cache_bytes_per_clock * 132 * 1980, own.stream_share * 4.8e6  # bytes per us
    expected = [own.start_us + 12e6 / near, own.start_us + 1.2e9 / far]
    assert times_us([small, large], h200) == pytest.approx(expected, rel=1e-3)
    in_tables = [replace(one, turns=1e9) for one in (small, large)]  # nothing in the cache
    assert times_us([*in_tables, small], h200)[:2] == pytest.approx(2.0 + np.array([12.0, 1200.0]) / (0.8414 * 4.8))
